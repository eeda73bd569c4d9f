"""A run over several GPUs whose hosts are in this process: what is asked where, what is written, what is refused."""

import time

import pytest

from harness.errors import UnavailableError, UsageError
from harness.fleet import spread
from harness.fleet.cluster import GpuLostError
from harness.fleet.gpu_actor import GpuActor
from harness.records.file import ResultsFile, load
from harness.records.reason_texts import sentence
from harness.records.settings import Settings
from harness.run.invocation import Invocation
from harness.run.progress import Display
from harness.run.session import InterruptedRun
from tests.fleet.light import InProcess, Script, asked, rows_of

SHAPES = [16, 32, 48, 64]
IMPLS = ("quack", "torch-eager")


class LocalActor:
    """An actor of this process, which is lost after `dies` answers, or when it is asked for what `fault` names."""

    def __init__(self, actor, dies=None, fault=None):
        self.actor = actor
        self.fault = fault
        self.dies = dies
        self.ended = False

    def has_gpu(self, timeout_s):
        if self.fault == "host":
            raise GpuLostError("the actor died")
        return True

    def ask(self, method, *arguments, limit_s=None, **named):
        if self.dies is not None:
            self.dies -= method == "receive"
            if self.dies < 0:
                raise GpuLostError("the actor died")
        if method == self.fault:
            raise GpuLostError("the actor died")
        if self.ended:
            raise GpuLostError("it was ended")
        return getattr(self.actor, method)(*arguments, **named)

    def end(self):
        if self.actor is not None and not self.ended:
            self.actor.close()
        self.ended = True


class Busy(LocalActor):
    """An actor whose GPU others use."""

    def __init__(self):
        super().__init__(None)

    def has_gpu(self, timeout_s):
        time.sleep(min(timeout_s, 0.01))
        return False


class Late(LocalActor):
    """An actor that has its GPU as soon as something is so."""

    def __init__(self, actor, is_so):
        super().__init__(actor.actor)
        self.is_so = is_so
        actor.ended = True

    def has_gpu(self, timeout_s):
        return self.is_so()


class Fleet:
    """Hosts of one GPU each; `deaths` says after how many answers the actors of a host die, one after the other."""

    def __init__(self, folder, kinds=("h200", "h200"), deaths=None, faults=(), busy=0, **script):
        self.folder = folder
        self.kinds = kinds
        self.deaths = {host: list(after) for host, after in (deaths or {}).items()}
        self.faults = dict(faults)
        self.busy = busy
        self.script = script
        self.actors = []
        self.starts = []
        self._free = list(range(len(kinds)))

    def gpus(self):
        return {kind: self.kinds.count(kind) for kind in sorted(set(self.kinds))}

    def actor(self, kind):
        host = next((host for host in self._free if self.kinds[host] == kind), None)
        if host is None or len(self._free) <= self.busy:
            return Busy()
        self._free.remove(host)
        script = Script(self.folder, kind, uuid=str(host), host=f"host{host}", **self.script)
        actor = GpuActor(lambda start, log: self.starts.append(start) or InProcess(script))
        actor.host = lambda: f"host{host}"
        deaths = self.deaths.get(host, [])
        self.actors.append(LocalActor(actor, deaths.pop(0) if deaths else None, self.faults.get(host)))
        if self.actors[-1].dies is not None:
            self._free.append(host)  # whose next actor takes its place
        return self.actors[-1]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(spread, "PATIENCE_S", 0.0)
    monkeypatch.setattr(spread, "POLL_S", 0.01)


@pytest.fixture
def said(tmp_path):
    folder = tmp_path / "said"
    folder.mkdir()
    return folder


def invocation(tmp_path, processes=1, **more):
    shapes = ",".join(f"{rows}x1024" for rows in SHAPES)
    settings = Settings(shapes=shapes, norm="rms", impls="torch-eager,quack", processes=processes)
    return Invocation(settings=settings, fleet="local", out=tmp_path / "run", compile_ahead=0, **more)


def bench(fleet, asked_for):
    path = spread.bench_on(fleet, asked_for, Display())
    assert all(actor.ended for actor in fleet.actors)
    return load(path)


def all_rows(processes=1):
    return sorted((process, rows, impl) for process in range(processes) for rows in SHAPES for impl in IMPLS)


def test_one_gpu_does_what_a_run_without_a_fleet_does(tmp_path, said):
    results = bench(Fleet(said, ["h200"]), invocation(tmp_path, processes=2))
    assert asked(said) == [("0", process, rows) for process in (0, 1) for rows in SHAPES]
    assert [(test.process, test.when) for test in results.selftests] == [
        (process, when) for process in (0, 1) for when in ("before", "after")
    ]
    assert rows_of(results) == all_rows(2)
    assert not results.end.interrupted


def test_each_case_is_measured_on_one_gpu_and_its_processes_on_several(tmp_path, said):
    results = bench(Fleet(said, ["h200"] * 2), invocation(tmp_path, processes=2))
    assert rows_of(results) == all_rows(2)
    of_case = {}
    for row in results.rows:
        of_case.setdefault((row.process, row.case.rows), set()).add(row.gpu)
    assert all(len(gpus) == 1 for gpus in of_case.values())
    assert all(of_case[0, rows] != of_case[1, rows] for rows in SHAPES)
    assert {gpu.number: gpu.host for gpu in results.gpus} == {0: "host0", 1: "host1"}
    assert {test.gpu for test in results.selftests} == {0, 1}


def test_of_the_kinds_there_the_one_that_was_asked_for(tmp_path, said):
    results = bench(Fleet(said, ["h200", "b200", "h200"]), invocation(tmp_path, kinds="h200", gpus=1))
    assert [gpu.host for gpu in results.gpus] == ["host0"]


@pytest.mark.parametrize(
    ("kinds", "there", "message"),
    [
        ("h100", ["h200", "b200"], "--fleet local: --kinds h100: not in this cluster, which has 1 b200, 1 h200"),
        (None, [], "--fleet local: this cluster has no GPU"),
        (None, ["h200", "b200"], "--fleet local: this cluster has 1 b200, 1 h200; name one of them with --kinds"),
    ],
)
def test_a_kind_that_is_not_there_or_not_named_is_said_at_once(tmp_path, said, kinds, there, message):
    with pytest.raises((UnavailableError, UsageError)) as refused:
        bench(Fleet(said, there), invocation(tmp_path, kinds=kinds))
    assert str(refused.value) == message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("deaths", [{1: [3]}, {0: [3]}, {0: [1], 1: [9]}])
def test_a_gpu_that_is_lost_costs_no_row(tmp_path, said, deaths, capsys):
    results = bench(Fleet(said, deaths=deaths), invocation(tmp_path, processes=2))
    assert sorted(set(rows_of(results))) == all_rows(2)
    assert {row.status for row in results.rows} == {"ok"}
    assert "lost on host" in capsys.readouterr().err


def test_a_case_that_costs_two_gpus_is_written_off(tmp_path, said):
    fleet = Fleet(said, ["h200"], deaths={0: [3, 3]})
    results = bench(fleet, invocation(tmp_path))
    crashed = [(row.case.rows, row.impl, sentence(row.reason)) for row in results.rows if row.status == "crashed"]
    assert crashed == [(16, impl, "the GPU was lost in two tries: the actor died") for impl in ("torch-eager", "quack")]
    assert {row.case.rows for row in results.rows if row.status == "ok"} == set(SHAPES[1:])


def test_a_hang_costs_the_rows_it_costs_without_a_fleet(tmp_path, said):
    results = bench(Fleet(said, ["h200"], hangs="quack"), invocation(tmp_path))
    statuses = {(row.impl, row.status) for row in results.rows}
    assert statuses == {("torch-eager", "ok"), ("quack", "timeout"), ("quack", "crashed")}  # the last in quarantine
    assert rows_of(results) == all_rows()


def test_gpus_that_others_use_are_left_to_them(tmp_path, said):
    results = bench(Fleet(said, ["h200"] * 3, busy=2), invocation(tmp_path))
    assert rows_of(results) == all_rows()
    assert len(results.gpus) == 1


def test_a_run_waits_for_a_gpu_and_says_so(tmp_path, said, monkeypatch, capsys):
    """Others use the only GPU until the run has said so."""
    fleet = Fleet(said, ["h200"])
    free = fleet.actor
    monkeypatch.setattr(spread, "SAY_EVERY_S", 0.0)
    fleet.actor = lambda kind: Late(free(kind), lambda: "free are 0 of 1 h200" in capsys.readouterr().err)
    results = bench(fleet, invocation(tmp_path))
    assert rows_of(results) == all_rows()


def test_a_gpu_that_is_lost_before_it_begins_is_left_out(tmp_path, said):
    results = bench(Fleet(said, faults={1: "launch"}), invocation(tmp_path))
    assert rows_of(results) == all_rows()
    assert [gpu.host for gpu in results.gpus] == ["host0"]
    with pytest.raises(UnavailableError, match="no h200 can be used: the actor died"):
        bench(Fleet(said, ["h200"], faults={0: "host"}), invocation(tmp_path))


def test_a_gpu_with_a_foreign_process_is_refused(tmp_path, said):
    with pytest.raises(UnavailableError, match=r"other processes use this NVIDIA H200 \(process 7\)"):
        bench(Fleet(said, others=(7,)), invocation(tmp_path))
    results = bench(Fleet(said, others=(7,)), invocation(tmp_path, allow_others=True))
    assert rows_of(results) == all_rows()


def test_versions_that_differ_are_refused(tmp_path, said):
    told = "host1 has other versions than host0 (torch 2.10.0); install the same"
    with pytest.raises(UnavailableError) as refused:
        bench(Fleet(said, torch={"host1": "2.10.0"}), invocation(tmp_path))
    assert str(refused.value) == told
    assert not (tmp_path / "run").exists()


def test_a_run_that_was_cut_short_is_gone_on_with(tmp_path, said, monkeypatch):
    """Its file has half of the rows; only the others are measured, and a GPU that it knows keeps its number."""
    written = []
    append = ResultsFile.append

    def cut(self, record):
        written.append(record.record)
        if record.record == "row" and written.count("row") == 5:
            raise KeyboardInterrupt
        append(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(ResultsFile, "append", cut)
        with pytest.raises(InterruptedRun) as interrupt:
            bench(Fleet(said), invocation(tmp_path, processes=2))
    path = interrupt.value.path
    before = load(path)
    assert before.end.interrupted
    results = bench(Fleet(said), invocation(tmp_path, processes=2, resume=True))
    assert {(row.process, row.case.rows, row.impl) for row in results.rows} == set(all_rows(2))
    assert len(results.rows) <= len(all_rows(2)) + 2  # of the case that was cut short on each GPU
    assert sorted(gpu.number for gpu in results.gpus) == [0, 1]


def test_a_full_disk_ends_all_lanes(tmp_path, said, monkeypatch):
    def full(self, record):
        raise UnavailableError("cannot write: no space left")

    with monkeypatch.context() as patch:
        patch.setattr(ResultsFile, "append", full)
        with pytest.raises(UnavailableError, match="no space left"):
            bench(Fleet(said), invocation(tmp_path))
