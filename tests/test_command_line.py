"""What is typed, what is answered in one line, and the exit code; nothing half-written is left behind."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import reports
from harness.__main__ import main
from harness.devices.facts import DeviceFacts
from harness.engine_version import ENGINE_VERSION
from harness.errors import UnavailableError, UsageError
from harness.fleet import preview
from harness.git import GitError
from harness.interrupts import Interrupts
from harness.records.file import ResultsFile, load
from harness.records.reasons import Reason
from harness.records.run_records import ImplRecord
from harness.records.schema import Budget, Check, ConditionsRecord, SelfTestRecord
from harness.records.settings import Settings
from harness.run import listing, opening, process, provenance, session
from harness.run.invocation import Invocation
from harness.run.process import WorkerDiedError
from harness.run.progress import Display
from harness.worker.messages import Aside, Began, Done, Hello, Load, Refused, Row, SelfTest, Warm
from harness.worker.revisions import Side
from reports import FORMATS
from reports.parts import selftest
from reports.published import documents as written
from tests.fake_worker import Ready
from tests.results_factory import mixed, row, timing

ROOT = Path(__file__).parents[1]
CPU = DeviceFacts("cpu", "Some CPU", "x86_64", l2_bytes=1 << 20)
GPU = DeviceFacts("cuda", "NVIDIA H200", "sm_90", l2_bytes=60 << 20, uuid="1234")
HELLO = Hello(
    available=[CPU],
    implementations=[
        ImplRecord(name=name, family=name, source=f"impls/{name}.py") for name in ("torch-eager", "quack", "liger")
    ],
    libraries={"torch": "2.11.0"},
)
WITH_GPU = replace(HELLO, available=[GPU, CPU])
BUDGET = Budget(t0_us=1.0, fixed_us=2.0, relative=0.01, ratio=0.02)


POSIX = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(line):
    """Run a command line; its exit code."""
    with pytest.raises(SystemExit) as caught:
        main(shlex.split(line))
    return caught.value.code or 0


class ScriptedProcess(Ready):
    """Stands in for a worker process: greets, then gives each implementation the status that is scripted for it."""

    greeting = HELLO
    greetings = ()  # in place of the one greeting
    checks = ()  # what a self-test finds; None: it is not finished
    statuses: dict  # by implementation; an exception is raised in its place
    launched: list

    def __init__(self, start, log):
        self.start = start
        self.launched.append(self)
        self.requests = []
        super().__init__(*(self.greetings or [self.greeting]))
        self.killed = False

    def send(self, request):
        self.requests.append(request)
        if isinstance(request, SelfTest):
            self._test(request)
        elif isinstance(request, (Load, Warm)):
            self.events.append(Done())
        else:
            self._try(request)

    def _test(self, request):
        self.events.append(Began(None, "self-test"))
        if self.checks is None:
            self.events.append(WorkerDiedError("the worker process was killed by SIGSEGV"))
            return
        told = SelfTestRecord(when=request.when, process=request.process, budget=BUDGET, checks=list(self.checks))
        self.events += [Aside(told), Done()]

    def _try(self, request):
        self.events.append(Began(None, "inputs"))
        if request.settings.timed:
            self.events.append(Aside(ConditionsRecord(case=request.case, group=request.group, process=request.process)))
        for impl in request.impls:
            status = self.statuses.get(impl, "ok")
            self.events.append(Began(impl, "verify"))
            if not isinstance(status, str):
                self.events.append(status)
                return
            us = 10.0 if status == "ok" and request.settings.timed else None
            told = None if status == "ok" else "because"
            more = {"untimed": "timing was not asked for"} if status == "ok" and not request.settings.timed else {}
            timed = timing(us, group=request.group) if us else None
            more["process"] = request.process
            self.events.append(Row(row(impl, us, request.case, status, timed=timed, reason=told, **more)))
        self.events.append(Done())

    def kill(self):
        self.killed = True

    def pause(self):
        """It has nothing to stop."""

    go_on = pause


@pytest.fixture
def workers(monkeypatch):
    """Scripted workers; every one of them has been ended when the test is over."""
    scripted = type("Scripted", (ScriptedProcess,), {"statuses": {}, "launched": []})
    monkeypatch.setattr(process, "WorkerProcess", scripted)
    yield scripted
    assert all(worker.killed for worker in scripted.launched)


@pytest.fixture
def no_worker(monkeypatch):
    def refuse(start, log):
        raise AssertionError("a worker was started for a line that is wrong on any machine")

    monkeypatch.setattr(process, "WorkerProcess", refuse)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bench --shapes 8192", "--shapes: '8192' is not a shape; write ROWSxCOLS, such as 8192x4096"),
        ("bench --processes 0", "--processes 0: must be at least 1"),
        ("bench --shapes 0x1", "--shapes: '0x1' is empty; rows and cols are at least 1, such as 8192x4096"),
        ("bench --dtype int8", "--dtype int8: not one of bf16, fp16, fp32"),
        ("bench --impl missing.py", "--impl missing.py: no such file"),
        ("bench --suite quick --shapes 1x1", "--suite and --shapes both name the cases; give one of them"),
        (
            "bench --fleet local --kinds h200,b200",
            "--kinds 'h200,b200': name one kind of GPU, such as h200; each has a run of its own",
        ),
        ("bench --kinds h200", "--kinds: of a fleet; name it with --fleet local or --fleet ADDRESS"),
        ("bench --gpus 2 --kinds h200", "--kinds, --gpus: of a fleet; name it with --fleet local or --fleet ADDRESS"),
        ("bench --fleet local --gpus 0", "--gpus 0: must be at least 1"),
        ("bench --flush wet", "--flush wet: not one of clean, dirty, none"),
        (
            "bench --context graph,warm",
            "--context 'warm': not one of cold, graph, beside:N, hot-dy, in-a-row, host, fwd+bwd, or step for "
            "cold,graph,beside:8,beside:32,hot-dy,in-a-row,host",
        ),
        ("bench --holder 640", "--holder 640: must be THREADSxKIB, such as 640x200"),
        ("bench --out=", "--out is empty; name a folder"),
        ("bench --impl '' --out ''", "--out is empty; name a folder"),
        ("report caf\udce9", r"'caf\udce9': is not UTF-8; give another name"),
        ("bench --impls nosuch", "no implementation is called 'nosuch'; `normbwd list impls` names them"),
        ("bench --impls quak", "no implementation is called 'quak' (did you mean quack?)"),
        ("bench --baseline ligr", "no implementation is called 'ligr' (did you mean liger?)"),
        ("bench --resume", "--resume: run/results.jsonl does not exist; start without --resume"),
        ("bench --blurb", "No such option: --blurb; try `normbwd bench --help`"),
        ("frobnicate", "No such command 'frobnicate'; try `normbwd --help`"),
        ("bench extra", "Got unexpected extra argument(s) (extra); try `normbwd bench --help`"),
        ("list things", "list things: not one of impls, suites, variants, contexts, devices"),
        ("list suites --impl mine.py", "--impl: adds to `list impls` alone; leave it out"),
        ("report absent.jsonl --subject quack", "--subject quack: is of --format pr; add that, or leave --subject out"),
        ("report absent.jsonl", "cannot read absent.jsonl: No such file or directory"),
        ("report .", ". is a folder; give a results file, RUN/results.jsonl"),
    ],
)
def test_bad_command_line_gives_one_line_of_error(no_worker, folder, capsys, line, message):
    assert typed(line + " --out run" * line.startswith("bench")) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"error: {message}\n")
    assert list(folder.iterdir()) == []


def test_a_value_of_the_wrong_type_is_answered_in_one_line(no_worker, capsys):
    assert typed("bench --seed abc --out run") == 2
    assert re.fullmatch(r"error: Invalid value for '--seed': .*; try `normbwd bench --help`\n", capsys.readouterr().err)


REFUSED_AT_ONCE = """
import contextlib, sys
from harness.__main__ import main
for line in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        main(line.split())
slow = {"harness.run.process", "torch", "scipy", "numpy", "arch", "matplotlib", "triton", "ray", "rich"}
print(sorted(slow & sys.modules.keys()))
"""


def test_what_is_mistyped_is_refused_before_a_library_is_imported_or_a_worker_starts(folder):
    (folder / "taken").mkdir()
    (folder / "taken" / "results.jsonl").touch()
    (folder / "mine.py").touch()
    options = ("--impls nonsense", "--baseline nonsense", "--device nonsense", "--shapes 12xfoo", "--out taken")
    refused = [f"{command} {option}" for command in ("bench", "verify") for option in options]
    refused += ["verify --inputs nonsense", "bench --case nonsense", "tune --impls nonsense", "selftest --device none"]
    refused += ["compare --base HEAD --impls nonsense", "compare --base HEAD --impls quack --out taken"]
    refused += ["report nonsense.jsonl", "gate nonsense.jsonl", "bench --tuned nonsense"]
    refused += ["judge nonsense.py", "judge mine.py --peers nonsense", "judge mine.py --shapes 1", "list nonsense"]
    command = [sys.executable, "-c", REFUSED_AT_ONCE, *refused]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"
    lines = printed.stderr.splitlines()
    assert len(lines) == len(refused)
    assert all(line.startswith("error: ") for line in lines)


DESCRIBED = """
import sys
from harness.worker import serve
from harness.worker.messages import Start
start = Start(device="cpu", measures=False)
hello = serve._hello(serve.find_implementations(start), start, True, lambda file: None)
assert len(hello.implementations) > 20
print("torch" in sys.modules)
"""


@pytest.mark.skipif(any(map(find_spec, ("cutlass", "cudnn"))), reason="an adapter asks this library, which takes torch")
def test_what_is_here_is_told_without_torch():
    printed = subprocess.run([sys.executable, "-c", DESCRIBED], capture_output=True, text=True, check=True)
    assert printed.stdout == "False\n"


def test_help_is_no_error(capsys):
    assert typed("bench --help") in (0, None)
    shown = capsys.readouterr().out
    places = [shown.index(part) for part in ("--suite", "--shapes", "--device", "--resume", "For experts", "--eps")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (
            "bench --device b200",
            4,
            "--device b200: torch finds no GPU on this machine; run it where there is one, or use --device cpu",
        ),
        ("selftest", 4, "the self-test needs a GPU; on a CPU nothing is ranked (docs/method.md)"),
    ],
)
def test_what_only_a_worker_can_tell_leaves_nothing_behind(workers, folder, capsys, line, code, message):
    assert typed(f"{line} --out run") == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"starting a worker\nerror: {message}\n")
    assert len(workers.launched) == 1
    assert list(folder.iterdir()) == []


def test_without_a_fleet_nothing_of_ray_is_imported(workers, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)  # whose import then fails
    assert typed("bench --shapes 16x64 --quick --out run") in (0, None)
    assert typed("bench --fleet local --out other") == 4
    assert "error: --fleet needs Ray (import of ray halted; " in capsys.readouterr().err


def test_a_dry_run_says_what_it_would_do(workers, folder, monkeypatch, capsys):
    monkeypatch.setattr(preview, "published", lambda kind, several: [1, 2])
    monkeypatch.setattr(preview, "seconds_of_a_row", lambda *runs: 45.0)
    line = "bench --dry-run --shapes 16x64,32x64 --norm rms --impls torch-eager,quack --processes 3 --quick"
    assert typed(line) in (0, None)
    on_cpu = (
        "cpu: 6 jobs on this CPU; a job is a case on all implementations in one process\n"
        "  2 cases: rms-16x64-fp32, rms-32x64-fp32\n"
        "  2 implementations: torch-eager, quack\n"
        "  3 processes\n"
        "  time: unknown, as the published runs are of GPUs\n"
    )
    assert capsys.readouterr().out == on_cpu
    for draw, cases in (("2", "drawn when the run begins"), ("2@7", "rms-")):
        assert typed(f"bench --dry-run --norm rms --impls quack --draw {draw}") in (0, None)
        assert f"  2 cases: {cases}" in capsys.readouterr().out
    assert list(folder.iterdir()) == []
    workers.greeting = WITH_GPU
    assert typed(line) in (0, None)
    on_gpu = on_cpu.replace("cpu:", "h200:").replace("this CPU", "this GPU").replace("fp32", "bf16")
    told = "about 9 min by 2 published runs, and less with --quick"
    assert capsys.readouterr().out == on_gpu.replace("unknown, as the published runs are of GPUs", told)


def test_a_dry_run_counts_nothing_that_is_not_installed(workers, monkeypatch, capsys):
    monkeypatch.setattr(preview, "published", lambda kind, several: [1, 2])
    monkeypatch.setattr(preview, "seconds_of_a_row", lambda *runs: 45.0)
    eager, quack, _ = HELLO.implementations
    absent = quack.model_copy(update={"missing": Reason.model_validate("not installed: quack")})
    workers.greeting = replace(WITH_GPU, implementations=[eager, absent])
    assert typed("bench --dry-run --shapes 16x64,32x64 --norm rms --processes 3") in (0, None)
    told = capsys.readouterr().out
    assert "  1 implementation: torch-eager\n  1 not installed: quack\n" in told
    assert "time: about 4 min" in told


def test_a_dry_run_on_a_fleet_needs_no_gpu_here(workers, folder, monkeypatch, capsys):
    gpus = {"h200": 8, "toaster": 1}

    @contextmanager
    def connected(address):
        yield SimpleNamespace(gpus=lambda: gpus)

    monkeypatch.setattr(preview, "connected", connected)
    monkeypatch.setattr(preview, "published", lambda kind, several: [])
    line = "bench --dry-run --fleet 10.0.0.1:6379 --shapes 16x64 --norm rms --gpus 4"
    assert typed(line) == 2
    assert "this cluster has 8 h200, 1 toaster; name one of them with --kinds\n" in capsys.readouterr().err
    assert typed(f"{line} --kinds toaster") in (0, None)
    assert "toaster: 1 job on 1 GPU;" in capsys.readouterr().out
    assert typed(f"{line} --kinds h200") in (0, None)
    told = capsys.readouterr().out
    assert "h200: 1 job on 4 GPUs" in told
    assert "implementations, where a host has them: torch-eager, " in told
    assert told.count("  1 case: rms-16x64-bf16\n") == 1
    assert "time: unknown, as there is no published run here" in told
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("more", ["", " --dry-run"])
def test_nothing_is_published_of_a_cpu(workers, folder, capsys, more):
    assert typed(f"publish --device CPU --only odd{more}") == 2
    told = "error: --device cpu: a CPU's times are not published; name a GPU, such as h200, or leave it out\n"
    assert capsys.readouterr().err.endswith(told)
    assert list(folder.iterdir()) == []


def test_what_a_cpu_cannot_have_and_what_is_missing_is_said_once(workers, capsys):
    eager, quack, _ = HELLO.implementations
    absent = quack.model_copy(update={"missing": Reason.model_validate("not installed: quack")})
    slow = quack.model_copy(update={"name": "slow", "family": "slow", "source": "slow.py", "slow_to_compile": True})
    workers.greeting = replace(HELLO, implementations=[eager, absent, slow])
    assert typed("bench --shapes 4x8 --norm rms --context graph,hot-dy --out run") in (0, None)
    told = capsys.readouterr()
    assert "Left out, as they compile for minutes: slow (`--impls all` runs them)." in told.out
    assert told.err.splitlines()[:5] == [
        "starting a worker",
        "--context graph: a CPU has no streams, so that nothing runs beside a call; left out",
        "left out, as they compile for minutes: slow (--impls all)",
        "1 of 2 implementations missing: see `normbwd list impls`",
        "rms-4x8-fp32: 1 ok",
    ]


def test_resuming_where_there_is_no_run_at_all(workers, folder, capsys):
    assert typed("bench --resume") == 2
    message = "error: --resume: there is no earlier run in runs/; name its folder with --out\n"
    assert capsys.readouterr().err.endswith(message)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("out", "why"), [("file", "File exists"), ("file/below", "Not a directory"), ("n" * 300, "File name too long")]
)
def test_a_folder_that_cannot_be_made(workers, folder, capsys, out, why):
    (folder / "file").write_text("precious")
    assert typed(f"bench --out {out}") == 2
    expected = f"error: cannot write to {out}: {why}; give a writable folder with --out\n"
    assert capsys.readouterr().err.endswith(expected)
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert (folder / "file").read_text() == "precious"


DIED = "the worker process was killed by SIGKILL"


@pytest.mark.parametrize(
    ("greeting", "code", "message"),
    [
        (Refused("--impl mine.py has no prepare", 2), 2, "--impl mine.py has no prepare"),
        (Refused("no such device", 4), 4, "no such device"),
        (WorkerDiedError(DIED), 4, f"{DIED} while it started; its last words: none"),
        (None, 4, "the worker did not start within 180 s; its last words: none"),
    ],
)
def test_a_worker_that_refuses_or_does_not_start_is_quoted(workers, folder, capsys, greeting, code, message):
    workers.greeting = greeting
    assert typed("bench --out run") == code
    assert capsys.readouterr().err == f"starting a worker\nerror: {message}\n"
    assert list(folder.iterdir()) == []


def test_a_run_writes_results_and_a_report_and_prints_it(workers, folder, capsys):
    assert typed("bench --shapes 4x8,8x8 --norm rms --out run") in (0, None)
    results = load(folder / "run" / "results.jsonl")
    assert [(row.case.key, row.impl, row.status) for row in results.rows] == [
        (f"rms-{rows}x8-fp32", impl, "ok") for rows in (4, 8) for impl in ("torch-eager", "quack", "liger")
    ]
    assert results.run.jobs == 2
    assert results.end is not None
    assert not results.end.interrupted
    assert len(workers.launched) == 1  # the one that told what is here also does the work
    shown = capsys.readouterr()
    assert "quack" in shown.out
    assert shown.err.splitlines() == [
        "starting a worker",
        "rms-4x8-fp32: 3 ok",
        "rms-8x8-fp32: 3 ok",
        "results: run/results.jsonl",
        "report:  run/report.md",
    ]
    page = (folder / "run" / "report.md").read_text()
    assert page.startswith("# Norm backward on ")
    assert "quack" in page


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (("ok", "wrong", "crashed"), 0),
        (("nondeterministic", "wrong", "wrong"), 0),
        (("wrong", "wrong", "wrong"), 1),
        (("crashed", "missing", "unsupported"), 1),
        (("oom", "oom", "oom"), 4),
        (("oom", "unsupported", "oom"), 4),
        (("oom", "wrong", "oom"), 1),
        (("unsupported", "unsupported", "unsupported"), 4),
    ],
)
def test_the_exit_code_of_a_bench(workers, statuses, code):
    workers.statuses.update(zip(("torch-eager", "quack", "liger"), statuses, strict=True))
    assert (typed("bench --shapes 4x8 --norm rms --out run") or 0) == code


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (("ok", "ok", "ok"), 0),
        (("ok", "nondeterministic", "unsupported"), 0),
        (("ok", "ok", "wrong"), 1),
        (("ok", "ok", "crashed"), 1),
        (("ok", "ok", "timeout"), 1),
        (("ok", "ok", "oom"), 1),
        (("oom", "oom", "oom"), 4),
    ],
)
def test_the_exit_code_of_a_verify_and_it_times_nothing(workers, folder, statuses, code):
    workers.statuses.update(zip(("torch-eager", "quack", "liger"), statuses, strict=True))
    assert typed("verify --shapes 4x8 --norm rms --inputs normal --out run") == code
    results = load(folder / "run" / "results.jsonl")
    assert not results.run.settings.timed
    assert [(row.process, row.timing) for row in results.rows] == [(of, None) for of in (0, 1) for _ in statuses]
    assert (folder / "run" / "report.md").read_text().startswith("# Verification of norm backwards on ")


INTERRUPTED = "error: interrupted"


def test_an_interrupt_before_a_run_is_told_in_one_line(workers, folder, capsys):
    workers.greeting = KeyboardInterrupt()
    assert typed("bench --shapes 4x8 --norm rms --out run") == 130
    assert capsys.readouterr() == ("", f"starting a worker\nnothing was measured\n{INTERRUPTED}\n")
    assert list(folder.iterdir()) == []
    workers.greeting = HELLO
    assert typed("bench --shapes 4x8 --norm rms --out run") in (0, None)
    workers.greeting = KeyboardInterrupt()
    capsys.readouterr()
    assert typed("bench --shapes 4x8 --norm rms --out run --resume") == 130
    assert capsys.readouterr().err == f"starting a worker\nnothing more was measured\n{INTERRUPTED}\n"


def test_an_interrupted_run_is_reported_as_far_as_it_came_and_goes_on(workers, folder, capsys, monkeypatch):
    """The latest run is resumed, whatever the others are called."""
    typed("bench --shapes 4x8 --norm rms --out runs/zero")
    line = "bench --shapes 4x8,8x8 --norm rms"
    monkeypatch.setattr("sys.argv", ["normbwd", *line.split()])
    workers.statuses["liger"] = KeyboardInterrupt()
    capsys.readouterr()
    assert typed(line) == 130
    (run,) = (path.relative_to(folder) for path in (folder / "runs").iterdir() if path.name != "zero")
    shown = capsys.readouterr()
    assert "quack" in shown.out
    assert shown.err.splitlines() == [
        "starting a worker",
        f"results: {run}/results.jsonl",
        f"report:  {run}/report.md",
        f"go on:   normbwd {line} --resume --out {run} (what is done is kept)",
        INTERRUPTED,
    ]
    cut = load(run / "results.jsonl")
    assert cut.end.interrupted
    assert [row.impl for row in cut.rows] == ["torch-eager", "quack"]
    workers.statuses.clear()
    assert typed(f"{line} --resume") in (0, None)
    whole = load(run / "results.jsonl")
    assert [(row.case.rows, row.impl) for row in whole.rows] == [
        (rows, impl) for rows in (4, 8) for impl in ("torch-eager", "quack", "liger")
    ]
    assert not whole.end.interrupted
    assert typed(f"{line} --resume --out {run}") in (0, None)  # there is nothing left to do
    assert load(run / "results.jsonl").rows == whole.rows


def test_an_interrupt_before_the_first_row(workers, capsys):
    workers.statuses["torch-eager"] = KeyboardInterrupt()
    assert typed("bench --shapes 4x8 --norm rms --out run") == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "results: run/results.jsonl, in which nothing was measured yet" in shown.err


def test_more_interrupts_change_nothing(workers, folder, capsys, monkeypatch):
    """Whether they come while the worker is ended, while the file is closed, or while the report is written."""

    def interrupted_thrice(function):
        def call(*arguments, **named):
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
            return function(*arguments, **named)

        return call

    def interrupt():
        for owner, name in ((workers, "kill"), (ResultsFile, "close"), (reports, "write_compared")):
            monkeypatch.setattr(owner, name, interrupted_thrice(getattr(owner, name)))
        os.kill(os.getpid(), signal.SIGINT)

    workers.statuses["liger"] = interrupt
    before = signal.getsignal(signal.SIGINT)
    assert typed("bench --shapes 4x8 --norm rms --out run") == 130
    assert signal.getsignal(signal.SIGINT) == before
    assert "quack" in (folder / "run" / "report.md").read_text()
    assert load(folder / "run" / "results.jsonl").end.interrupted
    assert "\nresults: run/results.jsonl\n" in capsys.readouterr().err


def test_an_interrupt_as_a_worker_ends_is_one_of_a_run(workers, folder, capsys, monkeypatch):
    kill = workers.kill
    monkeypatch.setattr(workers, "kill", lambda worker: kill(worker) or os.kill(os.getpid(), signal.SIGINT))
    assert typed("bench --shapes 4x8 --norm rms --out run") == 130
    assert "nothing was measured" not in capsys.readouterr().err
    assert (folder / "run" / "report.md").exists()


def test_a_second_interrupt_after_a_while_ends_what_the_first_one_left(monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    handler, raised = Interrupts(), []
    for now_s[0] in (100.0, 100.1, 104.9, 105.0, 105.1):
        try:
            handler(signal.SIGINT, None)
        except KeyboardInterrupt:
            raised.append(now_s[0])
    assert raised == [100.0, 105.0]


INTERRUPTED_PROGRAM = """
import atexit, os, runpy, signal, sys
from importlib.abc import MetaPathFinder

def interrupt():
    for _ in range(5):
        os.kill(os.getpid(), signal.SIGINT)

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            interrupt()

sys.meta_path.insert(0, Interrupting())
atexit.register(interrupt)
sys.argv = ["normbwd", "list", "suites"]
{start}
"""
AS_A_COMMAND = "from harness.interrupts import main; main()"
AS_A_MODULE = "runpy.run_module('harness', run_name='__main__', alter_sys=True)"


@pytest.mark.parametrize(
    ("start", "module", "code", "error"),
    [
        (AS_A_COMMAND, "typer", 130, INTERRUPTED),
        (AS_A_MODULE, "harness.run.listing", 130, INTERRUPTED),
        (AS_A_COMMAND, "no", 0, ""),
        (AS_A_MODULE, "no", 0, ""),
    ],
)
def test_interrupts_while_a_command_is_imported_and_while_it_ends(start, module, code, error):
    program = INTERRUPTED_PROGRAM.format(start=start, module=module)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False
    )
    assert (ended.returncode, ended.stderr.strip()) == (code, error)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_what_ends_a_program_ends_a_run_as_ctrl_c_does(workers, folder, number):
    before = signal.signal(number, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        workers.statuses["liger"] = lambda: os.kill(os.getpid(), number)
        assert typed("bench --shapes 4x8 --norm rms --out run") == 130
        assert load(folder / "run" / "results.jsonl").end.interrupted
        assert (folder / "run" / "report.md").exists()
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_hang_up_that_nohup_ignores_ends_nothing(workers, folder):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        workers.statuses["liger"] = lambda: os.kill(os.getpid(), signal.SIGHUP) or "ok"
        typed("bench --shapes 4x8 --norm rms --out run")
        assert not load(folder / "run" / "results.jsonl").end.interrupted
    finally:
        signal.signal(signal.SIGHUP, before)


REPORT = "import sys; from harness.__main__ import main; main(['report', sys.argv[1], '--format', 'markdown'])"


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "cp1252"}, POSIX])
def test_a_report_is_printed_whatever_the_encoding(measured, variables):
    text = measured.read_text(encoding="utf-8").replace("NVIDIA H200", "NVIDIA H200 \u2264")
    measured.write_text(text, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-c", REPORT, measured], env=os.environ | variables, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.startswith(b"# Norm backward on NVIDIA H200 \\u2264")


@pytest.mark.parametrize(
    ("redirected", "code", "error"),
    [
        ("<&- >&-", 0, b""),
        (">&- 2>&-", 0, b""),
        (">/dev/full 2>/dev/full", 4, b""),
        (">/dev/full", 4, b"error: cannot write the answer: No space left on device; files are kept\n"),
    ],
)
def test_what_cannot_be_printed_ends_in_one_line_at_most(measured, redirected, code, error):
    command = ["sh", "-c", f'"$0" -c "$1" "$2" {redirected}', sys.executable, REPORT, measured]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, error)


def test_a_reader_that_leaves_changes_no_exit_code(measured):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", REPORT, measured]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("events", "code", "message"),
    [
        (
            [Began("mine.py", "start"), None],
            2,
            "--impl mine.py: its import or missing() did not end within 7 s (--time-limit)",
        ),
        (
            [Began("mine.py", "start"), WorkerDiedError("the worker process was killed by SIGSEGV")],
            4,
            "the worker process was killed by SIGSEGV while it imported mine.py; its last words: none",
        ),
        (
            [Began("mine.py", "start"), Began(None, "start"), None],
            4,
            "the worker did not start within 180 s; its last words: none",
        ),
    ],
)
def test_a_file_that_hangs_or_dies_as_it_is_imported(workers, folder, capsys, events, code, message):
    workers.greetings = events
    assert typed("bench --out run --time-limit 7") == code
    assert capsys.readouterr().err == f"starting a worker\nerror: {message}\n"
    (worker,) = workers.launched
    assert worker.waited_s[1] == 7


def test_a_run_that_another_process_writes_is_not_resumed(workers, folder, capsys):
    typed("bench --shapes 4x8 --norm rms --out run")
    path = folder / "run" / "results.jsonl"
    path.write_bytes(path.read_bytes() + b'{"record":"row","ca')  # which the other process is about to end
    before = path.read_bytes()
    with opening.claimed(path):
        assert typed("bench --shapes 4x8 --norm rms --out run --resume") == 2
    said = "another process writes to run/results.jsonl; wait for its end, or begin a new run"
    assert said in capsys.readouterr().err
    assert path.read_bytes() == before
    assert typed("bench --shapes 4x8 --norm rms --out run --resume") in (0, None)


def test_a_file_that_is_cut_off_anywhere_is_resumed_to_the_rows_of_a_whole_one(workers, folder):
    """Of each implementation one row: what was measured with the rows that were lost is measured again."""
    line = "bench --shapes 4x8 --norm rms --out run"
    typed(line)
    path = folder / "run" / "results.jsonl"
    content = path.read_bytes()
    last_row = content.rstrip().rfind(b"\n", 0, content.rstrip().rfind(b"\n")) + 1
    for length in (*range(last_row - 2, last_row + 3), *range(last_row + 3, len(content), 400), len(content) - 1):
        path.write_bytes(content[:length])
        assert typed(f"{line} --resume") in (0, None)
        assert [row.impl for row in load(path).rows] == ["torch-eager", "quack", "liger"]


@pytest.mark.parametrize("content", ["precious", "a page\nwithout an end", '{"record":"row"'])
def test_a_file_that_is_not_ours_is_left_as_it_is(workers, folder, capsys, content):
    path = folder / "run" / "results.jsonl"
    path.parent.mkdir()
    path.write_text(content)
    assert typed("bench --shapes 4x8 --out run --resume") == 2
    assert capsys.readouterr().err.count("error: ") == 1
    assert (path.read_text(), [each.name for each in path.parent.iterdir()]) == (content, ["results.jsonl"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "error: run/results.jsonl is a directory; --out names another folder"),
        (
            " --resume",
            "starting a worker\nerror: run/results.jsonl is a folder; give a results file, RUN/results.jsonl",
        ),
    ],
)
def test_results_that_are_a_directory(workers, folder, capsys, more, message):
    (folder / "run" / "results.jsonl").mkdir(parents=True)
    assert typed(f"bench --shapes 4x8 --out run{more}") == 2
    assert capsys.readouterr().err == f"{message}\n"


def test_a_full_disk_is_told_in_one_line(workers, folder, capsys, monkeypatch):
    monkeypatch.setattr(opening, "RESULTS_NAME", "full")
    (folder / "run").mkdir()
    typed("bench --shapes 4x8 --norm rms --out run")
    full = folder / "run" / "full"
    full.unlink()
    full.symlink_to("/dev/full")
    capsys.readouterr()
    monkeypatch.setattr(opening, "resume", lambda out, run, jobs, **_: (full, jobs, None))
    assert typed("bench --shapes 4x8 --norm rms --out run --resume") == 4
    message = f"error: cannot write {full}: No space left on device; what is done is kept\n"
    assert capsys.readouterr().err == f"starting a worker\n{message}"


@pytest.mark.parametrize("change", [shutil.rmtree, lambda run: run.rename("elsewhere")])
def test_a_folder_that_goes_away_is_noticed_at_the_next_row(workers, folder, capsys, change):
    workers.statuses["torch-eager"] = lambda: (change(folder / "run"), Row(row("torch-eager", None, status="wrong")))[1]
    assert typed("bench --shapes 4x8,4x16 --norm rms --out run") == 4
    assert capsys.readouterr().err == (
        "starting a worker\nerror: run/results.jsonl was deleted or moved while it was written; "
        "begin a new run, or --resume where it is now\n"
    )


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ("--seed 1", ("seed 0", "seed 1")),
        ("--quick", ("quick False", "quick True")),
        ("--context hot-dy", ("context cold", "context cold,hot-dy")),
        ("--processes 2", ("processes 1", "processes 2")),
        ("--impls liger", ("impls None, baseline torch-eager", "impls liger, baseline liger")),
    ],
)
def test_another_run_cannot_be_resumed(workers, folder, capsys, monkeypatch, more, options):
    """Of its settings those are named that can be typed, and the command that began it."""
    line = "bench --shapes 4x8 --norm rms --out run"
    monkeypatch.setattr("sys.argv", ["normbwd", *line.split()])
    typed(line)
    before = (folder / "run" / "results.jsonl").read_bytes()
    assert typed(f"{line} --resume {more}") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    was, now = options
    assert error == (
        f"error: --resume: run/results.jsonl has other settings ({was}) than this run ({now}); start a new run, or add "
        f"--resume to what began it: normbwd {line}"
    )
    assert (folder / "run" / "results.jsonl").read_bytes() == before


def test_other_implementations_cannot_be_mixed_into_a_run(workers, capsys):
    line = "bench --shapes 4x8 --norm rms --out run"
    typed(line)
    mine = ImplRecord(name="mine", family="mine", source="mine.py")
    workers.greeting = replace(HELLO, implementations=[*HELLO.implementations, mine])
    assert typed(f"{line} --resume") == 2
    told = "other settings (implementations without mine) than this run (implementations with mine)"
    assert told in capsys.readouterr().err


def test_another_revision_goes_on_with_a_run_and_another_version_does_not(workers, monkeypatch, capsys):
    line = "bench --device cpu --shapes 8x8 --norm rms --out run"
    monkeypatch.setattr(session, "own_revision", lambda _: "abc1234")
    assert typed(line) in (0, None)
    monkeypatch.setattr(session, "own_revision", lambda _: "def5678")
    assert typed(f"{line} --resume") in (0, None)
    assert load(Path("run/results.jsonl")).revisions == ("abc1234", "def5678")
    with monkeypatch.context() as raised:
        raised.setattr(session, "ENGINE_VERSION", 7)
        assert typed(f"{line} --resume") == 2
    began = "since run/results.jsonl began, version of"
    assert (
        f"{began} the engine went from {ENGINE_VERSION} to 7; put it back as it was, or start a new"
        in capsys.readouterr().err
    )
    raised = [item.model_copy(update={"version": int(item.name == "liger")}) for item in HELLO.implementations]
    workers.greeting = replace(HELLO, implementations=raised)
    assert typed(f"{line} --resume") == 2
    assert f"{began} liger went from 0 to 1; put it back" in capsys.readouterr().err


def test_what_changed_since_a_run_began_is_named(workers, folder, capsys):
    line = "bench --shapes 4x8 --norm rms --out run"
    workers.greeting = replace(HELLO, libraries={"torch": "2.11.0", "torch_norm.py": "sha256:aaa", "gone": "1"})
    typed(line)
    workers.greeting = replace(HELLO, libraries={"torch": "2.12.0", "torch_norm.py": "sha256:bbb"})
    assert typed(f"{line} --resume") == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: --resume: since run/results.jsonl began, gone went from 1 to absent, torch went from 2.11.0 to 2.12.0, "
        "torch_norm.py changed; put it back as it was, or start a new run"
    )


def test_a_run_says_aloud_that_git_refuses_to_tell_its_revision(workers, monkeypatch, capsys):
    def refuse(*_):
        raise GitError("fatal: detected dubious ownership")

    monkeypatch.delenv("NORMBWD_REVISION", raising=False)
    monkeypatch.setattr(provenance, "git", refuse)
    typed("bench --shapes 4x8 --norm rms --out run")
    assert "\nno revision of normbwd is recorded: fatal: detected dubious ownership\n" in f"\n{capsys.readouterr().err}"
    assert load(Path("run/results.jsonl")).run.revision is None


def test_other_revisions_cannot_be_mixed_into_a_comparison(workers):
    sides = (Side("base", "base.py", "aaa"), Side("head", "head.py", "bbb", "mine.py"))
    invocation = Invocation(settings=Settings(shapes="4x8", norm="rms"), out=Path("run"), sides=sides)
    path = session.bench(invocation, Display())
    assert [(side.word, side.commit, side.file) for side in load(path).run.sides] == [
        ("base", "aaa", None),
        ("head", "bbb", "mine.py"),
    ]
    session.bench(invocation.changed(resume=True), Display())
    moved = invocation.changed(resume=True, sides=(sides[0], replace(sides[1], commit="ccc")))
    with pytest.raises(
        UsageError, match=r"other revisions \(base aaa of .*, head bbb of mine\.py\) than .*head ccc of"
    ):
        session.bench(moved, Display())


def test_what_is_not_installed_is_not_compared(workers, folder):
    how = "not installed: quack; pip install 'quack-kernels[cu13]'"
    sides = (Side("base", "base.py", "aaa"), Side("head", "head.py", "bbb"))
    of_sides = [
        ImplRecord(
            name=f"quack@{side.word}", family="quack", source=side.file, missing=how if side.word == "head" else None
        )
        for side in sides
    ]
    workers.greeting = replace(HELLO, implementations=[*HELLO.implementations, *of_sides])
    settings = Settings(shapes="4x8", norm="rms", impls="quack@base,quack@head", baseline="quack@base", processes=5)
    with pytest.raises(UnavailableError) as caught:
        session.bench(Invocation(settings=settings, out=Path("run"), sides=sides), Display())
    assert str(caught.value) == f"quack@head cannot be compared here: {how}"
    assert len(workers.launched) == 1
    assert list(folder.iterdir()) == []


def test_results_that_are_there_are_not_overwritten(workers, folder, capsys):
    line = "bench --shapes 4x8 --norm rms --out run"
    typed(line)
    before = (folder / "run" / "results.jsonl").read_bytes()
    assert typed(line) == 2
    expected = "error: run/results.jsonl exists; --resume goes on with it, --out names another folder\n"
    assert capsys.readouterr().err.endswith(expected)
    assert (folder / "run" / "results.jsonl").read_bytes() == before


@pytest.fixture
def measured(folder):
    written = mixed()
    file = ResultsFile(folder / "results.jsonl")
    for record in (written.run, *written.rows, written.end):
        file.append(record)
    file.close()
    return folder / "results.jsonl"


def test_a_report_of_a_file_that_was_cut(measured, capsys):
    measured.write_bytes(measured.read_bytes()[:-20])
    lines = measured.read_bytes().count(b"\n") + 1
    assert typed("report results.jsonl") == 2
    assert capsys.readouterr().err == (
        f"error: results.jsonl line {lines} is cut off; go on from the line before with "
        "`normbwd bench --device h200 --shapes 8192x4096 --resume --out .`\n"
    )


def test_an_error_about_a_file_is_one_line_without_escapes(measured, capsys):
    measured.write_text(measured.read_text().replace('"role"', '"\\u001b[2J\\nrole"', 1))
    assert typed("report results.jsonl") == 2
    error = capsys.readouterr().err
    assert " [2J role" in error
    assert error.count("\n") == 1


def test_a_report_is_printed_or_written(measured, folder, capsys, no_worker):
    assert typed("report results.jsonl --format markdown") in (0, None)
    printed = capsys.readouterr().out
    assert "triton-inhouse" in printed
    assert typed("report results.jsonl --format markdown --out table.md") in (0, None)
    assert (folder / "table.md").read_text() == printed
    assert capsys.readouterr().out == ""


def test_plots_are_written_into_a_folder_and_need_one(measured, folder, capsys, monkeypatch):
    assert typed("report results.jsonl --format plots") == 2
    assert capsys.readouterr().err == "error: --format plots is drawn, not written; give a folder with --out\n"
    monkeypatch.setattr("reports.plots.draw.MOST", 1)
    assert typed("report results.jsonl --format plots --out plots") in (0, None)
    assert sorted(path.suffix for path in (folder / "plots").glob("speedup-*")) == [".png", ".svg"]


def test_most_formats_take_one_file(measured, folder, capsys, no_worker):
    assert typed("report results.jsonl results.jsonl --format csv") == 2
    several = "gpus, history, html, leads, plots, verification take several"
    assert capsys.readouterr().err == f"error: --format csv takes one file, not 2; {several}\n"
    assert typed("report results.jsonl --format pdf") == 2
    assert capsys.readouterr().err.startswith("error: no report format 'pdf'; --format can be: console, ")
    assert typed("report results.jsonl results.jsonl") in (0, None)
    assert capsys.readouterr().out.startswith("# Runs side by side")


def test_the_help_names_every_format(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    typed("report --help")
    shown = capsys.readouterr().out
    assert all(form in shown for form in FORMATS)


@pytest.mark.parametrize(
    ("changed", "last"),
    [
        (["a.md"], ["1 would change; `normbwd documents` writes it"]),
        (["a.md", "b.md"], ["2 would change; `normbwd documents` writes them"]),
        ([], []),
    ],
)
def test_a_check_of_documents_says_what_writes_them(monkeypatch, capsys, changed, last):
    monkeypatch.setattr(written, "write_all", lambda check, more: changed)
    assert (typed("documents --check") or 0) == bool(changed)
    assert capsys.readouterr().out.splitlines() == changed + last
    assert typed("documents") in (0, None)
    assert capsys.readouterr().out.splitlines() == changed


def test_a_report_does_not_replace_what_it_is_of(measured, capsys):
    before = Path("results.jsonl").read_bytes()
    assert typed("report . --format markdown --out ./results.jsonl") == 2
    assert capsys.readouterr().err == "error: --out results.jsonl: is the results file itself; name another file\n"
    assert Path("results.jsonl").read_bytes() == before


@pytest.mark.parametrize("width", [None, 40])
def test_implementations_are_listed_with_what_to_type_for_those_that_are_missing(workers, capsys, width):
    """A line to be copied is never broken, however narrow the terminal; a table that is piped fits 120 columns."""
    how = "pip install 'git+https://github.com/meta-pytorch/KernelAgent#subdirectory=oink' && pip install 'a[b]'"
    eager, quack, liger = HELLO.implementations
    told = {
        "missing": Reason("missing", {"text": "not installed: oink"}, [Reason("to_install", {"command": how})]),
        "summary": "A kernel " + "of many words " * 9,
    }
    workers.greeting = Hello([CPU], [eager, quack.model_copy(update=told), liger.model_copy(update=told)], {})
    if width is None:
        assert typed("list impls") in (0, None)
    else:
        listing.show(listing.listing("impls"), Console(width=width, force_terminal=True, color_system=None))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[-2:] == ["quack, liger: not installed: oink", f"    {how}"]
    assert ["torch-eager", "yes"] in [line.split() for line in lines]
    assert all(len(line) <= (width or 120) for line in lines[:-1])


def test_suites_and_devices_are_listed_without_a_worker(no_worker, capsys):
    assert typed("list suites") in (0, None)
    assert typed("list devices") in (0, None)
    shown = capsys.readouterr().out
    assert "fast-llm" in shown
    assert "h200" in shown


# Processes, self-tests, and what else is measured with.


@pytest.fixture
def chosen(monkeypatch):
    """The invocations that reach a run; none is run."""
    invocations = []

    def run(invocation, display):
        invocations.append(invocation)
        raise UsageError("enough")

    monkeypatch.setattr(session, "bench", run)
    return invocations


@pytest.mark.parametrize(
    ("line", "settings", "rest"),
    [
        ("bench", {}, {}),
        ("bench --processes 5", {"processes": 5}, {}),
        ("bench --twice", {"twice": True}, {}),
        ("bench --cross-check", {"cross_check": True}, {}),
        ("bench --allow-others", {}, {"allow_others": True}),
        ("bench --quick --no-bias", {"quick": True, "bias": False}, {}),
        ("bench --impl a.py --impl b.py", {}, {"impl_files": (Path("a.py"), Path("b.py"))}),
        ("verify --allow-others --seeds 3", {"timed": False, "seeds": 3}, {"allow_others": True}),
        ("selftest", {}, {"selftest_alone": True}),
        (
            "selftest --device cpu --seed 3 --time-limit 9 --allow-others",
            {"seed": 3},
            {"selftest_alone": True, "device": "cpu", "time_limit_s": 9.0, "allow_others": True},
        ),
    ],
)
def test_options_reach_the_run(monkeypatch, chosen, page, folder, line, settings, rest):
    for name in ("a.py", "b.py"):
        (folder / name).touch()
    assert typed(line) == 2
    (invocation,) = chosen
    assert invocation.command.startswith("normbwd")
    assert invocation.changed(command="") == Invocation(settings=Settings(**settings), **rest)


def test_an_adapter_s_complaint_about_the_environment(workers, folder, capsys):
    workers.greeting = replace(HELLO, misconfigured={"quack": "cannot read tuned.json; unset TUNED"})
    assert typed("bench --shapes 4x8 --impls liger --out other") in (0, None)
    capsys.readouterr()
    assert typed("bench --shapes 4x8 --out run") == 2
    assert capsys.readouterr().err == "starting a worker\nerror: cannot read tuned.json; unset TUNED\n"
    assert not (folder / "run").exists()


def test_each_process_measures_all_in_a_fresh_worker(workers, folder, capsys):
    workers.greeting = WITH_GPU
    assert typed("bench --shapes 4x8,8x8 --norm rms --impls quack --processes 3 --quick --out run") in (0, None)
    assert len(workers.launched) == 3
    results = load(folder / "run" / "results.jsonl")
    assert [(row.process, row.case.rows) for row in results.rows] == [(of, rows) for of in range(3) for rows in (4, 8)]
    assert (results.run.jobs, results.run.settings.processes) == (2, 3)
    assert [(record.when, record.process) for record in results.selftests] == [("before", of) for of in range(3)]
    assert [(record.process, record.case.rows) for record in results.conditions] == [
        (of, rows) for of in range(3) for rows in (4, 8)
    ]
    assert results.budget == BUDGET
    assert capsys.readouterr().err.count("rms-4x8-bf16: 1 ok\n") == 3


def test_kernels_are_compiled_once_for_all_processes(workers, folder):
    quack = HELLO.implementations[1].model_copy(update={"compiles_ahead": True})
    workers.greeting = Hello([CPU], [HELLO.implementations[0], quack], {})
    typed("bench --shapes 4x8,8x8 --norm rms --processes 3 --compile-ahead 1 --out run")
    warmed = [request for worker in workers.launched for request in worker.requests if isinstance(request, Warm)]
    assert [(request.impl, request.case.rows) for request in warmed] == [("quack", 4), ("quack", 8)]
    assert [worker.start.asked for worker in workers.launched] == [True] + [False] * 3  # who compiles, two processes


def test_who_compiles_starts_beside_the_first_and_ends_with_it(workers):
    workers.greeting = Refused("no", 2)
    assert typed("bench --shapes 4x8 --compile-ahead 2") == 2
    assert [(worker.start.asked, worker.killed) for worker in workers.launched] == [(True, True)] + [(False, True)] * 2


def test_who_has_nothing_to_compile_ends_before_anything_is_timed(workers, monkeypatch):
    ended, tried = [], workers._try

    def trying(worker, request):
        ended.append([each.killed for each in workers.launched])
        tried(worker, request)

    monkeypatch.setattr(workers, "_try", trying)
    typed("bench --shapes 4x8 --norm rms --compile-ahead 2 --out run")
    assert ended == [[False, True, True]]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("bench --out run --shapes 4x8", 4),
        ("bench --out run --shapes 4x8 --allow-others", 0),
        ("bench --out run --shapes 4x8 --device cpu", 0),
        ("verify --out run --shapes 4x8", 0),
        ("selftest --out run", 4),
        ("selftest --out run --allow-others", 0),
    ],
)
def test_busy_gpu_is_refused_unless_allowed(workers, page, folder, capsys, line, code):
    workers.greeting = replace(HELLO, available=[replace(GPU, others=(71,)), CPU])
    assert (typed(line) or 0) == code
    message = (
        "error: other processes use this NVIDIA H200 (process 71) and would disturb every figure; "
        "end them, or measure beside them with --allow-others\n"
    )
    assert capsys.readouterr().err.endswith(message) == (code == 4)
    assert (folder / "run").exists() == (code == 0)


@pytest.fixture
def page(monkeypatch):
    """The page of a self-test, which says how many there were."""
    monkeypatch.setattr(selftest, "render", lambda records: f"{len(records)} self-tests\n")


PASSED, FAILED = Check(name="t0", passed=True, value=1.0), Check(name="cold", passed=False, value=9.0)
NOT_HERE = Check(name="null kernel", passed=None, detail="a CPU launches none")


@pytest.mark.parametrize(
    ("checks", "code"),
    [([PASSED, PASSED], 0), ([PASSED, NOT_HERE], 0), ([NOT_HERE], 0), ([PASSED, FAILED], 1), ([FAILED, NOT_HERE], 1)],
)
def test_the_exit_code_of_a_self_test(workers, page, folder, capsys, checks, code):
    workers.greeting = WITH_GPU
    workers.checks = checks
    assert typed("selftest --out run") == code
    results = load(folder / "run" / "results.jsonl")
    assert [(record.when, record.checks) for record in results.selftests] == [("alone", checks)]
    assert (results.rows, results.run.jobs) == ([], 0)
    assert capsys.readouterr() == ("1 self-tests\n", "starting a worker\nresults: run/results.jsonl\n")


def test_a_self_test_that_is_not_finished_has_not_passed(workers, page, folder, capsys):
    workers.greeting = WITH_GPU
    workers.checks = None
    assert typed("selftest --out run") == 1
    assert capsys.readouterr() == (
        "0 self-tests\n",
        "starting a worker\n"
        "the self-test was not finished: the worker process was killed by SIGSEGV\n"
        "results: run/results.jsonl\n",
    )


def test_unfinished_selftest_keeps_the_rows(workers, folder, capsys):
    """A self-test that does not finish costs a run nothing else."""
    workers.greeting = WITH_GPU
    workers.checks = None
    assert typed("bench --shapes 4x8 --norm rms --out run") in (0, None)
    results = load(folder / "run" / "results.jsonl")
    assert [row.status for row in results.rows] == ["ok"] * 3
    assert (results.selftests, results.budget) == ((), None)
    assert capsys.readouterr().err.count("the self-test was not finished: ") == 2  # before and after


@pytest.mark.slow
def test_a_file_that_is_no_adapter(folder, capfd):
    """With a real worker, as what it finds is found in a process of its own."""
    (folder / "mine.py").write_text("def prepare(inputs:\n")
    assert typed("bench --device cpu --impl mine.py --out run") == 2
    complaint = "--impl mine.py: line 1: '(' was never closed; mend the syntax"
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", f"starting a worker\nerror: {complaint}\n")
    assert not (folder / "run").exists()


@pytest.mark.parametrize("status", ["wrong", "unsupported"])
@pytest.mark.parametrize(("side", "code"), [("base", 0), ("head", 1)])
def test_a_comparison_fails_where_the_head_is_wrong_or_refuses(workers, monkeypatch, status, side, code):
    of_sides = [ImplRecord(name=f"quack@{word}", family="quack", source=f"/{word}") for word in ("base", "head")]
    workers.greeting = replace(HELLO, implementations=[*HELLO.implementations, *of_sides])
    workers.statuses[f"quack@{side}"] = status

    @contextmanager
    def sides(*_):
        yield Side("base", "/base", "aaa"), Side("head", "/head", "bbb")

    monkeypatch.setattr("harness.run.compare.two_sides", sides)
    monkeypatch.setattr("harness.run.compare._adapter_file", lambda *_: Path("quack.py"))
    line = "compare --impls quack --base aaa --shapes 4x8 --norm rms --processes 1 --out run"
    assert (typed(line) or 0) == code


@pytest.mark.parametrize(("wrong", "code"), [("liger", 1), ("quack", 0)])
def test_bench_fails_where_a_given_file_is_wrong(workers, folder, wrong, code):
    """An implementation of --impl that is wrong fails the bench; one of this project's own is a row among others."""
    (folder / "impls").mkdir()
    (folder / "impls/liger.py").touch()
    workers.statuses[wrong] = "wrong"
    assert (typed("bench --impl impls/liger.py --shapes 4x8 --norm rms --out run") or 0) == code
