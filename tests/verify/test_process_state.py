import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch

from harness.verify import precision
from harness.verify.process_state import ProcessState

OTHER = {
    "torch's default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch's default device": lambda: torch.set_default_device("meta"),
    "torch.backends.cuda.matmul.fp32_precision": lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "torch's float32 precision": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "torch's autocast": lambda: torch.set_autocast_enabled("cuda", True),
    "torch's detection of anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "the flushing of subnormal numbers": lambda: torch.set_flush_denormal(True),
    "the state of random numbers": lambda: torch.rand(1),
    "torch's deterministic algorithms": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "torch's gradient mode": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "torch's number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "torch's cuDNN benchmark mode": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "the working directory": lambda: os.chdir("/"),
    "Python's filters of warnings": lambda: warnings.simplefilter("ignore"),
    "Python's garbage collection": gc.disable,
    "handlers of signals": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "RLIMIT_CPU": lambda: resource.setrlimit(resource.RLIMIT_CPU, (9999, resource.RLIM_INFINITY)),
    "the CPUs of this process": lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:-1]),
    "the standard output": lambda: setattr(sys, "stdout", None),
    "the environment": lambda: os.environ.pop("PATH"),
    "torch.empty": lambda: setattr(torch, "empty", torch.zeros),
    "torch.nn.functional.layer_norm": lambda: delattr(torch.nn.functional, "layer_norm"),
    "torch.Tensor.mul_": lambda: setattr(torch.Tensor, "mul_", None),
    "torch.cuda.Event.elapsed_time": lambda: setattr(torch.cuda.Event, "elapsed_time", lambda *_: 1.0),
    "time.perf_counter_ns": lambda: setattr(time, "perf_counter_ns", lambda: 0),
    "harness.verify.precision.malformed": lambda: setattr(precision, "malformed", lambda *_: None),
}


@pytest.mark.parametrize("name", OTHER)
def test_what_changes_is_named_and_put_back(name):
    around = ProcessState.snapshot()
    assert around.changed() == []
    OTHER[name]()
    assert name in around.changed()  # what torch imports for it changes more
    around.restore()
    assert around.changed() == around.left_behind() == []


def test_a_timer_of_signals_is_named_and_stopped():
    limit_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)  # that of this test itself
    around = ProcessState.snapshot()
    signal.setitimer(signal.ITIMER_REAL, 1000)
    assert around.changed() == ["the timer of signals"]
    around.restore()
    assert signal.setitimer(signal.ITIMER_REAL, limit_s) == (0, 0)


def test_import_may_set_environment_and_filters(monkeypatch):
    around = ProcessState.snapshot()
    monkeypatch.setenv("A_LIBRARY", "1")
    warnings.simplefilter("ignore")
    assert around.changed_by_an_import() == []
    monkeypatch.setattr(torch, "empty", torch.zeros)
    assert around.changed_by_an_import() == ["torch.empty"]


def test_a_thread_that_stays_is_named():
    around = ProcessState.snapshot()
    end = threading.Event()
    stays = threading.Thread(target=end.wait, name="stays")
    ended = threading.Thread(target=lambda: None)
    for thread in (stays, ended):
        thread.start()
    ended.join()
    assert around.new_threads() == around.left_behind() == ["stays"]
    end.set()
    stays.join()
    assert around.new_threads() == []


TQDM, INDUCTOR = "/site/tqdm/_monitor.py", "/site/torch/_inductor/compile_worker/timer.py"


@pytest.mark.parametrize(
    ("file", "within", "name", "named"),
    [
        pytest.param(TQDM, TQDM, "Thread-1 (wait)", [], id="of tqdm"),
        pytest.param(INDUCTOR, "/work/mine.py", "subproc_worker_timer", [], id="of Inductor, which calls others"),
        pytest.param("/work/mine.py", TQDM, "tqdm_monitor", ["tqdm_monitor"], id="of somebody who goes by way of tqdm"),
        pytest.param("/work/mytqdm/_monitor.py", TQDM, "mine", ["mine"], id="of a file that ends like it"),
    ],
)
def test_housekeeping_threads_are_known_by_file(file, within, name, named):
    around = ProcessState.snapshot()
    begun, end = threading.Event(), threading.Event()
    defined = {"begun": begun, "end": end}
    exec(compile("def wait():\n    begun.set()\n    end.wait()", within, "exec"), defined)
    exec(compile("def run():\n    wait()", file, "exec"), defined)
    thread = threading.Thread(target=defined["run"], name=name)
    thread.start()
    assert begun.wait(10)
    try:
        assert around.new_threads() == around.left_behind() == named
    finally:
        end.set()
        thread.join()


OUTPUT = """
import os, sys
from harness.verify.process_state import read_output, restore_output

os.dup2(2, 1)
for fault in (
    "os.close(1)", "os.close(2)", "sys.stdout.close()", "sys.stdout = sys.stderr = None", "sys.stderr.close()",
    "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)",
):
    was = read_output()
    exec(fault)
    assert read_output() != was, fault
    restore_output(was)
    print(fault, flush=True)
    os.write(1, b"below\\n")
    os.write(2, b"error\\n")
    assert read_output()[2:] == was[2:], fault
"""


def test_closed_output_is_restored():
    command = [sys.executable, "-c", OUTPUT]
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr.splitlines()[1::3]) == (0, ["below"] * 6), ran.stderr
    assert ran.stderr.splitlines()[2::3] == ["error"] * 6
