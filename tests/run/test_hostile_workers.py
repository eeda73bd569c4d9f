"""Workers that run anybody's code: what they leave behind ends with them, and what they send runs nothing here."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

from harness.run import process
from harness.run.process import WorkerDiedError, WorkerProcess
from harness.worker.channel import Channel
from harness.worker.messages import Done
from harness.worker.own_process import end_with_parent, go_on_under_keeper, ignore_interrupts
from tests.worker.test_own_process import lives

PATIENCE_S = 300.0
ROOT = Path(__file__).parents[2]
STRAYS = (
    "setsid sleep {seconds} &",
    "(env -i setsid sh -c 'sleep {seconds} & sleep {seconds}' &)",  # without the worker's environment, and orphaned
    "sleep {seconds} &",
)
ENDS = {
    "": None,
    "os._exit(9)": "the worker process exited with status 9",
    "os.kill(os.getpid(), signal.SIGSEGV)": "the worker process was killed by SIGSEGV",
    "os.kill(os.getpid(), signal.SIGKILL)": "the worker process was killed by SIGKILL",
    "time.sleep(1000)": None,
    "os.closerange(3, 1000); time.sleep(1000)": "the worker closed its connection",
}


def play(connection, code, _):
    """The body of a worker that runs some code, and waits for the end of its stream."""
    ignore_interrupts()
    end_with_parent()
    go_on_under_keeper(connection.close)
    say_done = partial(Channel(connection, ()).send, Done())
    exec(code, {"os": os, "signal": signal, "time": time, "connection": connection, "say_done": say_done})
    connection.poll(None)


def started(code):
    return WorkerProcess(code, Path(), play)


@pytest.fixture
def seconds():
    """How long strays of this test sleep: no other process sleeps for so long."""
    return f"1000.{time.time_ns() % 10**9:09}"


def sleeping(seconds):
    """The processes that sleep for so long."""
    numbers = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                numbers.append(int(path.name))
        except OSError:  # it has ended
            continue
    return numbers


def wait_until(condition):
    while not condition():  # until the limit of every test
        time.sleep(0.02)


@pytest.mark.parametrize(("end", "how"), ENDS.items())
def test_what_a_worker_leaves_behind_ends_with_it(monkeypatch, seconds, end, how):
    monkeypatch.setattr(process, "GRACE_S", 0.5)
    monkeypatch.setattr(process, "EXIT_LIMIT_S", 0.5)
    strays = [stray.format(seconds=seconds) for stray in STRAYS]
    worker = started(f"for stray in {strays}: os.system(stray)\nsay_done(); {end}")
    assert worker.receive(PATIENCE_S) == Done()
    if how:
        with pytest.raises(WorkerDiedError, match=f"^{how}$"):
            worker.receive(PATIENCE_S)
    worker.kill()
    worker.kill()  # once more does no harm
    assert sleeping(seconds) == []


@pytest.mark.parametrize("paused", [False, True])
def test_what_a_worker_leaves_behind_ends_with_a_parent_that_is_killed(tmp_path, seconds, paused):
    """Also where the worker is paused, as one that compiles is while another is timed."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
            from tests.run.test_hostile_workers import PATIENCE_S, sleeping, started, wait_until

            if __name__ == "__main__":
                worker = started("os.system('setsid sleep {seconds} &'); say_done(); time.sleep({seconds})")
                worker.receive(PATIENCE_S)
                wait_until(lambda: sleeping("{seconds}"))
                {"worker.pause()" if paused else ""}
                print(worker._process.pid, flush=True)
                worker.receive(PATIENCE_S)
        """)
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        keeper = int(parent.stdout.readline())
        assert sleeping(seconds)
        parent.kill()
    wait_until(lambda: not sleeping(seconds))
    wait_until(lambda: not lives(keeper))


class RunsCode:
    """Its pickle touches a file where it is read."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


def test_a_pickle_of_a_worker_runs_nothing_here(tmp_path):
    file = tmp_path / "written"
    pickled = bytes(ForkingPickler.dumps(RunsCode(file)))
    worker = started(f"connection.send_bytes({pickled!r}); os.write(connection.fileno(), b'\\n')")
    with pytest.raises(WorkerDiedError, match="the worker sent what is no message"):
        worker.receive(PATIENCE_S)
    worker.kill()
    assert not file.exists()


def test_half_a_message_does_not_hold_the_parent():
    worker = started("os.write(connection.fileno(), b'Done {'); time.sleep(1000)")
    assert worker.receive(1.0) is None
    assert worker.receive(0.0) is None
    worker.kill()


def test_a_worker_that_starts_ignores_ctrl_c(capfd):
    """A terminal sends it to all processes of its group, a worker that still imports included."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        worker = started("say_done()")
        while (event := worker.receive(0.01)) is None:
            os.kill(worker._process.pid, signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert event == Done()
    worker.kill()
    assert capfd.readouterr().err == ""
