"""`normbwd tune` as it is typed: what it asks of its two runs, what it writes and prints, and what it refuses."""

import json
import shlex

import pytest

from harness.__main__ import main
from harness.devices import DeviceFacts
from harness.results.file import load
from harness.results.schema import Budget, ConditionsRecord, ImplRecord, SelfTestRecord
from harness.run import session
from harness.tune.sweep import ADAPTER
from harness.tune.winners import DEFAULT
from harness.worker.messages import Aside, Began, Done, Hello, Row, SelfTest, Try
from impls.inhouse.problem import LAUNCHES
from impls.inhouse.tuned import read
from impls.triton_inhouse import problem_of
from tests.fake_worker import Ready
from tests.results_factory import row, timing
from tests.tunings import LAUNCHES as OFFERED
from tests.tunings import NAMES, candidate, twin

B200 = DeviceFacts("cuda", "NVIDIA B200", "sm_100", memory_bytes=180 << 30, l2_bytes=126 << 20, sm_count=148)
CPU = DeviceFacts("cpu", "Some CPU", "x86_64", l2_bytes=1 << 20)
LIBRARIES = {"torch": "2.11.0", "triton": "3.6.0"}
BUDGET = Budget(t0_us=1.0, fixed_us=2.0, relative=0.01, ratio=0.02)


class ScriptedProcess(Ready):
    """Stands in for a worker process on a B200: each launch takes the time scripted for it, or has the status.

    `sweep` is of the first run, `confirm` of the one with named launches.
    """

    available = (B200, CPU)
    sweep: dict
    confirm: dict
    asked_of: list
    started: list
    alive: list

    def __init__(self, start, log):
        self.started.append(start)
        names = NAMES if start.impl_files else ("torch-eager", DEFAULT)
        known = [ImplRecord(name=name, family=DEFAULT, source="impls") for name in names]
        super().__init__(Hello(list(self.available), known, LIBRARIES))
        self.alive.append(self)

    def send(self, request):
        if isinstance(request, SelfTest):
            told = SelfTestRecord(when=request.when, process=request.process, budget=BUDGET, checks=[])
            self.events += [Aside(told), Done()]
        elif isinstance(request, Try):
            self.asked_of.append(request)
            self._try(request)
        else:
            self.events.append(Done())

    def _try(self, request):
        known = self.sweep if set(request.impls) == set(NAMES) else self.confirm
        told = {"process": request.process}
        told_of = ConditionsRecord(case=request.case, group=request.group, process=request.process)
        self.events += [Began(None, "inputs"), Aside(told_of)]
        for impl in request.impls:
            found = known.get(impl, 50.0)
            if isinstance(found, BaseException):
                self.events.append(found)
                return
            status, us = (found, None) if isinstance(found, str) else ("ok", found)
            timed = timing(us, group=request.group) if us else None
            make = candidate if impl in OFFERED else row
            why = None if status == "ok" else "spills 12 registers"
            self.events.append(
                Row(make(impl, us, case=request.case, status=status, timed=timed, reason=why).model_copy(update=told))
            )
            if impl == DEFAULT and us:
                again = twin(impl, us, request.case).model_copy(update={"timing": timed, **told})
                self.events.append(Row(again))
        self.events.append(Done())

    def kill(self):
        if self in self.alive:
            self.alive.remove(self)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working folder, and no file of launches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(LAUNCHES, raising=False)
    read.cache_clear()
    return tmp_path


@pytest.fixture
def workers(monkeypatch):
    """Scripted workers; every one of them has been ended when the test is over."""
    fresh = {"sweep": {}, "confirm": {}, "asked_of": [], "started": [], "alive": []}
    scripted = type("Scripted", (ScriptedProcess,), fresh)
    monkeypatch.setattr(session, "WorkerProcess", scripted)
    yield scripted
    assert scripted.alive == []


def typed(line):
    """Run a command line; its exit code."""
    with pytest.raises(SystemExit) as caught:
        main(shlex.split(line))
    return caught.value.code or 0


LINE = "tune --shapes 8192x4096 --norm rms --out run --compile-ahead 0"


def test_a_faster_launch_is_found_confirmed_and_written(workers, folder, capsys):
    workers.sweep.update({"launch-01": 48.0, "launch-02": 45.0, "launch-03": "unsupported"})
    workers.confirm.update({"launch-02": 46.0})
    assert typed(LINE) == 0
    file = read(str(folder / "run" / "launches.json"))
    assert (file.device, file.multiprocessors, file.triton) == ("NVIDIA B200", 148, "3.6.0")
    (case,) = file.cases
    assert case.launch == OFFERED["launch-02"]
    assert case.speedup.value == pytest.approx(50 / 46, rel=1e-3)
    sweep, confirm = (load(folder / "run" / name / "results.jsonl") for name in ("sweep", "confirm"))
    assert [item.name for item in sweep.run.implementations] == list(NAMES)
    assert [item.name for item in confirm.run.implementations] == [DEFAULT, "launch-02"]
    assert (sweep.run.settings.baseline, confirm.run.settings.baseline) == (DEFAULT, DEFAULT)
    assert (sweep.run.settings.processes, confirm.run.settings.processes) == (1, 5)
    assert [start.impl_files for start in workers.started[1:]] == [(str(ADAPTER),)] * (len(workers.started) - 1)
    assert {problem_of(each.case) for each in workers.asked_of} == {case.problem}
    shown = capsys.readouterr()
    assert shown.out == (
        "case                  default us    best us  speedup [95 %]        "
        "launch\n"
        "------------------  ------------  ---------  --------------------  "
        "----------------------------------------------------\n"
        "rms-8192x4096-bf16          54.9       50.5  1.087 [1.087, 1.087]  "
        "one pass: 2 x 4096, 16 warps, 128 programs, 3 stages\n"
        "\n"
        "A faster launch in 1 of 1 case.\n"
    )
    assert "cases with a faster launch: 1 of 1; measuring the winners again\n" in shown.err
    assert shown.err.endswith("launches: run/launches.json\n")


@pytest.mark.parametrize(
    ("sweep", "confirm", "runs"),
    [
        ({}, {}, 1),
        ({"launch-01": "wrong", "launch-02": "nondeterministic"}, {}, 1),
        ({"launch-01": 48.0}, {"launch-01": 50.0}, 6),
        ({"launch-01": 48.0}, {"launch-01": "wrong"}, 6),
    ],
)
def test_where_nothing_is_faster_the_default_stays_and_that_is_written(workers, folder, sweep, confirm, runs):
    workers.sweep.update(sweep)
    workers.confirm.update(confirm)
    assert typed(LINE) == 0
    (case,) = json.loads((folder / "run" / "launches.json").read_text())["cases"]
    assert case.keys() == {"norm", "rows", "cols", "dtype", "weight_dtype", "bias", "by_words", "default_us"}
    assert len(workers.asked_of) == runs


def test_only_cases_with_a_winner_are_measured_again(workers, folder):
    workers.sweep.update({"launch-01": 48.0})
    typed(LINE.replace("8192x4096", "8192x4096,64x256"))
    assert [each.case.cols for each in workers.asked_of] == [4096, 256] + [4096, 256] * 5


@pytest.mark.parametrize(("options", "processes"), [("--quick", 1), ("--processes 2", 2), ("", 5)])
def test_how_often_the_winners_are_measured(workers, folder, options, processes):
    workers.sweep.update({"launch-01": 45.0})
    workers.confirm.update({"launch-01": 45.0})
    assert typed(f"{LINE} {options}") == 0
    settings = load(folder / "run" / "confirm" / "results.jsonl").run.settings
    assert (settings.processes, settings.quick) == (processes, options == "--quick")


def test_an_interrupted_tuning_is_gone_on_with(workers, folder, capsys):
    workers.sweep.update({"launch-01": 45.0})
    workers.confirm.update({"launch-01": KeyboardInterrupt()})
    assert typed(LINE) == 130
    assert not (folder / "run" / "launches.json").exists()
    before = len(workers.asked_of)
    workers.confirm.update({"launch-01": 45.0})
    assert typed(LINE) == 2
    assert "run/sweep/results.jsonl exists; --resume goes on with it" in capsys.readouterr().err
    assert typed(f"{LINE} --resume") == 0
    assert len(workers.asked_of) == before + 5  # the sweep is not made again
    assert read(str(folder / "run" / "launches.json")).cases[0].launch == OFFERED["launch-01"]


def test_the_default_folder_is_one_of_its_own(workers, folder):
    assert typed(LINE.replace("--out run", "")) == 0
    (made,) = (folder / "runs").iterdir()
    assert made.name.endswith("-b200-tune")
    assert typed(f"{LINE.replace('--out run', '')} --resume") == 0
    assert list((folder / "runs").iterdir()) == [made]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (f"{LINE} --impls quack", 2, "tune measures triton-inhouse alone; --impls and --impl are of other commands"),
        (f"{LINE} --impl x.py", 2, "tune measures triton-inhouse alone; --impls and --impl are of other commands"),
        (f"{LINE} --processes 0", 2, "--processes 0: must be at least 1"),
        (f"{LINE} --dtype int8", 2, "--dtype int8: not one of bf16, fp16, fp32"),
        (f"{LINE} --flush none", 2, "No such option: --flush; `normbwd --help` tells what there is"),
    ],
)
def test_a_bad_line_is_answered_without_a_worker(monkeypatch, folder, capsys, line, code, message):
    monkeypatch.setattr(session, "WorkerProcess", None)
    assert typed(line) == code
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("command", "shown"), [("tune", False), ("compare", True)])
def test_the_help_names_no_option_that_is_refused(capsys, command, shown):
    typed(f"{command} --help")
    words = capsys.readouterr().out.split()
    assert "--shapes" in words
    assert ("--impls" in words, "--impl" in words) == (shown, shown)


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_a_gpu_there_is_nothing_to_tune(workers, folder, capsys, device):
    workers.available = (CPU,)
    assert typed(f"{LINE} --device {device}") == 4
    message = "error: tune needs a GPU, and this is a CPU, where the in-house kernel is never timed\n"
    assert capsys.readouterr() == ("", f"starting a worker to see what is here\n{message}")
    assert list(folder.iterdir()) == []


def test_a_tuning_is_not_made_on_top_of_another(folder, monkeypatch, capsys):
    monkeypatch.setenv(LAUNCHES, "launches.json")
    assert typed(LINE) == 2
    message = "error: tune compares with the launches chosen without a file; unset NORMBWD_LAUNCHES\n"
    assert capsys.readouterr().err == message


def test_a_default_that_fails_everywhere_is_the_exit_code(workers, folder):
    workers.sweep.update({DEFAULT: "crashed"})
    assert typed(LINE) == 1
    assert json.loads((folder / "run" / "launches.json").read_text())["cases"] == []
