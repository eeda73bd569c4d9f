"""Real worker processes: few, as each imports torch."""

import os
import resource
import signal
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from triton import knobs

from harness.cases import NormCase
from harness.errors import UnavailableError
from harness.records.file import load
from harness.records.settings import Settings
from harness.run.invocation import Invocation
from harness.run.process import WorkerDiedError, start_worker
from harness.run.progress import Display
from harness.run.session import bench
from harness.worker.messages import Began, Done, Hello, Row, Start, Try, Warm
from harness.worker.serve import ENVIRONMENT
from tests.wording import worded

MUTANTS = Path(__file__).parents[1] / "mutants"
PATIENCE_S = 1500.0  # a busy machine may be slow
UNTIMED = Settings(timed=False, seeds=1, repeats=2)


def files(*names):
    return tuple(MUTANTS / f"{name}.py" for name in names)


def start(*names):
    return Start(device="cpu", impl_files=tuple(map(str, files(*names))))


def pages_bytes():
    """The address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@contextmanager
def address_space(limit):
    """Processes that are started meanwhile get no more than this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.slow
def test_run_survives_crash_hang_exit_and_noise(tmp_path, capfd):
    names = ("honest", "segfault", "leaves", "hang", "noisy", "cached", "forks")
    invocation = Invocation(
        settings=Settings(shapes="16x64", norm="rms", impls=",".join(names), quick=True),
        device="cpu",
        impl_files=files(*names),
        out=tmp_path / "run",
        time_limit_s=60.0,  # more than an honest stage takes on a busy machine
    )
    path = bench(invocation, Display())
    assert path == tmp_path / "run" / "results.jsonl"
    results = load(path)
    rows = {row.impl: row for row in results.rows if row.role == "impl"}
    assert {name: (row.status, worded(row.reason)) for name, row in rows.items()} == {
        "honest": ("ok", None),
        "segfault": ("crashed", "the worker process was killed by SIGSEGV in stage 'first call'"),
        "leaves": ("crashed", "the worker process exited with status 9 in stage 'prepare'"),
        "hang": ("timeout", worded(rows["hang"].reason)),
        "noisy": ("ok", None),
        "cached": ("wrong", "dx, dweight did not follow new contents of dy at the same address"),
        "forks": ("ok", None),
    }
    assert worded(rows["hang"].reason).startswith("no sign of life for 60 s in stage 'first call'")
    assert Counter(row.role for row in results.rows) == {"impl": 7, "again": 1, "floor": 1}
    timed = [row.timing for row in results.rows if row.timing]
    assert len(timed) == 5  # honest, noisy, forks, the baseline again, the floor
    assert len({timing.group for timing in timed}) == 1
    assert len({tuple(timing.blocks) for timing in timed}) == 1

    run = results.run
    assert (run.jobs, run.settings.baseline, run.device.profile) == (1, "honest", "cpu")
    assert [item.name for item in run.implementations] == list(names)
    assert results.end is not None
    assert not results.end.interrupted

    shown = capfd.readouterr()
    assert shown.out == ""
    assert "autotuning noise" not in shown.err
    log = (path.parent / "worker.log").read_text()
    assert {"autotuning noise at import", "autotuning noise from Python", "autotuning noise from C"} <= set(
        log.splitlines()
    )


@pytest.mark.slow
def test_memory_without_end_costs_a_row_and_not_the_machine(tmp_path):
    with address_space(pages_bytes() + (4 << 30)):
        worker = start_worker(start("allocates", "honest"), tmp_path / "worker.log").worker
    try:
        worker.send(Try(NormCase("rms", 4, 8, device="cpu"), ("allocates", "honest"), "g1", UNTIMED))
        events = [worker.receive(PATIENCE_S)]
        while events[-1] not in (None, Done()):
            events.append(worker.receive(PATIENCE_S))
        rows = {event.row.impl: event.row for event in events if isinstance(event, Row)}
    finally:
        worker.kill()
    assert {name: row.status for name, row in rows.items()} == {"allocates": "oom", "honest": "ok"}
    assert "can't allocate memory" in worded(rows["allocates"].reason)


@pytest.mark.slow
def test_worker_greets_ignores_ctrl_c_and_death_is_reported(tmp_path):
    complains = tmp_path / "complains.py"
    own = files("honest")[0].read_text().replace('name = "honest"', 'name = "complains"')
    complains.write_text(own + "\n\ndef misconfigured(device):\n    return f'no file for a {device}'\n")
    told = Start("cpu", (*start("honest").impl_files, str(complains)))
    started = start_worker(told, tmp_path / "worker.log")
    worker, hello = started.worker, started.hello
    try:
        assert hello.misconfigured["complains"] == "no file for a cpu"
        assert [facts.kind for facts in hello.available] == ["cpu"]
        assert "honest" in [item.name for item in hello.implementations]
        assert {"python", "torch"} <= set(hello.libraries)

        pid = worker._process.pid
        worker.pause()
        worker.send(Warm(NormCase("rms", 4, 8, device="cpu"), "honest", 0))
        assert worker.receive(1.0) is None
        worker.go_on()
        assert worker.receive(PATIENCE_S) == Done()

        os.kill(pid, signal.SIGINT)  # a terminal sends it to parent and child alike
        assert worker.receive(0.0) is None
        worker.send(Try(NormCase("rms", 4, 8, device="cpu"), ("honest",), "g1", UNTIMED))
        events = [worker.receive(PATIENCE_S)]
        while events[-1] not in (None, Done()):
            events.append(worker.receive(PATIENCE_S))
        assert [event for event in events if isinstance(event, Began)] == [
            Began("honest", "asking"),
            Began(None, "inputs"),
            Began("honest", "prepare"),
            Began("honest", "first call"),
            Began("honest", "verify"),
        ]
        assert [event.row.status for event in events if isinstance(event, Row)] == ["ok"]
        assert events[-1] == Done()

        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=r"^the worker process was killed by SIGKILL$"):
            worker.receive(PATIENCE_S)
        with pytest.raises(WorkerDiedError, match=r"^the worker process was killed by SIGKILL$"):
            worker.send(Try(NormCase("rms", 4, 8, device="cpu"), ("honest",), "g2", UNTIMED))
    finally:
        worker.kill()
        worker.kill()  # once more does no harm


@pytest.mark.slow
def test_adapter_whose_library_kills_the_process_is_named(tmp_path, monkeypatch):
    folder = tmp_path / "impls"
    folder.mkdir()
    dies = folder / "dies.py"
    dies.write_text(files("honest")[0].read_text() + "\n\ndef missing():\n    import kills\n")
    library = tmp_path / "kills.py"
    library.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGFPE)\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "worker.log").write_text(
        'Fatal Python error: Aborted\n\n  File "/impls/another.py", line 7 in missing\n'
    )
    with pytest.raises(UnavailableError) as told:
        start_worker(Start("cpu", (str(dies),)), tmp_path / "worker.log")
    line = len(dies.read_text().splitlines())
    assert str(told.value) == (
        f"the worker process was killed by SIGFPE while it imported {dies}; its last words: Floating point exception, "
        f"in line {line} of {dies}; mend or uninstall what is imported there"
    )
    assert f'File "{library}", line 2 in <module>' in (tmp_path / "worker.log").read_text()


def test_death_of_an_earlier_worker_is_not_told_of_a_later_one(tmp_path):
    class Gone:
        def __init__(self, *_):
            self.kill = lambda: None

        def receive(self, _):
            raise WorkerDiedError("the worker process was killed by SIGKILL")

    log = tmp_path / "worker.log"
    log.write_text('Fatal Python error: Aborted\n\n  File "/impls/another.py", line 7 in missing\n')
    with pytest.raises(UnavailableError, match="killed by SIGKILL while it started; its last words: none"):
        start_worker(start(), log, process=Gone)


@pytest.mark.slow
def test_a_worker_that_is_not_asked_says_nothing_of_what_is_here(tmp_path):
    told = tmp_path / "told.py"
    own = files("honest")[0].read_text()
    told.write_text(own + "\n\ndef missing():\n    raise AssertionError('it was asked')\n")
    started = start_worker(Start("cpu", (str(told),), asked=False), tmp_path / "worker.log")
    try:
        assert started.hello == Hello([], [], {})
        started.worker.send(Warm(NormCase("rms", 4, 8, device="cpu"), "honest", 0))
        assert started.worker.receive(PATIENCE_S) == Done()
    finally:
        started.worker.kill()


def test_what_triton_keeps_lies_where_it_does_by_default(monkeypatch):
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    assert ENVIRONMENT["TRITON_CACHE_DIR"] == knobs.cache.dir
