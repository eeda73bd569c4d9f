"""`normbwd tune` as it is typed: what it asks of its runs, what it writes and prints, and what it refuses."""

import pytest

from harness.cases.tuned import read_tuned
from harness.devices.facts import DeviceFacts
from harness.records.file import load
from harness.records.run_records import ImplRecord
from harness.records.schema import Budget, ConditionsRecord, SelfTestRecord
from harness.run import process
from harness.tune.offers import MOST_CONFIGS
from harness.worker.messages import Aside, Began, Done, Hello, ListConfigs, Offer, Offered, Row, SelfTest, Try
from tests.fake_worker import Ready
from tests.results_factory import row, timing
from tests.test_command_line import typed
from tests.tunings import CONFIGS, DEFAULT, NAMES, candidate, twin

B200 = DeviceFacts("cuda", "NVIDIA B200", "sm_100", memory_bytes=180 << 30, l2_bytes=126 << 20, sm_count=148)
LIBRARIES = {"torch": "2.11.0", "triton": "3.6.0"}
BUDGET = Budget(t0_us=1.0, fixed_us=2.0, relative=0.01, ratio=0.02)


class ScriptedProcess(Ready):
    """Stands in for a worker process on a B200: each configuration takes the time scripted for it, or has the status.

    `offer` is what the implementation offers, `sweep` is for the run of all, `confirm` for that of the winners.
    """

    offer: Offer
    sweep: dict
    confirm: dict
    missing: str | None
    tried: list
    started: list
    alive: list

    def __init__(self, start, log):
        self.started.append(start)
        known = [("torch-eager", None), ("triton-inhouse", None), (DEFAULT, self.missing)]
        known += [(name, None) for name in NAMES[1:] if start.offered]
        records = [ImplRecord(name=name, family=name, source="impls", missing=missing) for name, missing in known]
        super().__init__(Hello([B200], records, LIBRARIES))
        self.alive.append(self)

    def send(self, request):
        if isinstance(request, ListConfigs):
            self.events += [Offered([self.offer] * len(request.cases)), Done()]
        elif isinstance(request, SelfTest):
            record = SelfTestRecord(when=request.when, process=request.process, budget=BUDGET, checks=[])
            self.events += [Aside(record), Done()]
        elif isinstance(request, Try):
            self.tried.append(request)
            self._try(request)
        else:
            self.events.append(Done())

    def _try(self, request):
        script = self.sweep if set(request.impls) == set(NAMES) else self.confirm
        numbered = {"process": request.process}
        conditions = ConditionsRecord(case=request.case, group=request.group, **numbered)
        self.events += [Began(None, "inputs"), Aside(conditions)]
        for impl in request.impls:
            scripted = script.get(impl, 50.0)
            if isinstance(scripted, BaseException):
                self.events.append(scripted)
                return
            status, us = (scripted, None) if isinstance(scripted, str) else ("ok", scripted)
            more = {"case": request.case, "timed": timing(us, group=request.group) if us else None}
            more |= {"status": status, "reason": None if status == "ok" else "spills 12 registers"}
            made = row(impl, us, **more) if impl == DEFAULT else candidate(NAMES.index(impl), us, **more)
            self.events.append(Row(made.model_copy(update=numbered)))
            if impl == DEFAULT and us:
                again = twin(impl, us, request.case).model_copy(update={"timing": more["timed"], **numbered})
                self.events.append(Row(again))
        self.events.append(Done())

    def kill(self):
        if self in self.alive:
            self.alive.remove(self)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    read_tuned.cache_clear()
    return tmp_path


@pytest.fixture
def workers(monkeypatch):
    """Scripted workers; every one of them has been ended when the test is over."""
    fresh = {"offer": Offer(CONFIGS), "missing": None, "sweep": {}, "confirm": {}}
    scripted = type("Scripted", (ScriptedProcess,), fresh | {"tried": [], "started": [], "alive": []})
    monkeypatch.setattr(process, "WorkerProcess", scripted)
    yield scripted
    assert scripted.alive == []


LINE = "tune --impls mine --shapes 8192x4096 --norm rms --out run --compile-ahead 0"


def test_a_faster_one_is_found_confirmed_and_written(workers, folder, capsys):
    workers.sweep.update({"mine#01": 48.0, "mine#02": 45.0, "mine#03": "unsupported"})
    workers.confirm.update({"mine#02": 46.0})
    assert typed(LINE) == 0
    file = read_tuned("run/tuned.json")
    assert (file.device, file.multiprocessors, file.libraries) == ("NVIDIA B200", 148, LIBRARIES)
    (case,) = file.cases
    assert (case.impl, case.case, case.tried) == ("mine", workers.tried[0].case, 4)
    assert (case.config_name, case.config) == ("rows=4", CONFIGS["rows=4"])
    assert case.speedup.value == pytest.approx(50 / 46, rel=1e-3)
    sweep, confirm = (load(folder / "run" / "mine" / name / "results.jsonl") for name in ("sweep", "confirm"))
    assert [item.name for item in sweep.run.implementations] == list(NAMES)
    assert [item.name for item in confirm.run.implementations] == [DEFAULT, "mine#02"]
    assert (sweep.run.settings.baseline, confirm.run.settings.baseline) == (DEFAULT, DEFAULT)
    assert (sweep.run.settings.processes, confirm.run.settings.processes) == (1, 5)
    first, *others = workers.started
    assert (first.offered, {tuple(start.offered.items()) for start in others}) == ({}, {(("mine", 4),)})
    shown = capsys.readouterr()
    assert shown.out == (
        "implementation    case                  default us    best us  speedup [95 %]        configuration\n"
        "----------------  ------------------  ------------  ---------  --------------------  ---------------\n"
        "mine              rms-8192x4096-bf16          54.9       50.5  1.087 [1.087, 1.087]  rows=4\n"
        "\n"
        "A faster configuration in 1 of 1 case.\n"
    )
    assert "mine: a configuration is faster in 1 of 1 cases\nmine: measuring the winners again\n" in shown.err
    assert shown.err.endswith("tuned: run/tuned.json\n")


@pytest.mark.parametrize(
    ("sweep", "confirm", "runs"),
    [
        ({}, {}, 1),
        ({"mine#01": "wrong", "mine#02": "nondeterministic"}, {}, 1),
        ({"mine#01": 48.0}, {"mine#01": 50.0}, 6),
        ({"mine#01": 48.0}, {"mine#01": "wrong"}, 6),
    ],
)
def test_where_nothing_is_faster_the_default_stays(workers, sweep, confirm, runs):
    workers.sweep.update(sweep)
    workers.confirm.update(confirm)
    assert typed(LINE) == 0
    (case,) = read_tuned("run/tuned.json").cases
    assert (case.config_name, case.config, case.best_us, case.speedup) == (None, None, None, None)
    assert case.default_us == pytest.approx(54.9, abs=0.1)
    assert len(workers.tried) == runs


@pytest.mark.parametrize(("options", "processes"), [("--quick", 1), ("--processes 2", 2), ("", 5)])
def test_how_often_the_winners_are_measured(workers, folder, options, processes):
    workers.sweep.update({"mine#01": 45.0})
    workers.confirm.update({"mine#01": 45.0})
    assert typed(f"{LINE} {options}") == 0
    settings = load(folder / "run" / "mine" / "confirm" / "results.jsonl").run.settings
    assert (settings.processes, settings.quick) == (processes, options == "--quick")


def test_an_interrupt_says_what_goes_on_with_a_tuning(workers, folder, capsys, monkeypatch):
    line = LINE.replace(" --out run", "")
    monkeypatch.setattr("sys.argv", ["normbwd", *line.split()])
    workers.sweep.update({"mine#01": KeyboardInterrupt()})
    assert typed(line) == 130
    (made,) = (folder / "runs").iterdir()
    told = f"go on:   normbwd {line} --resume --out {made.relative_to(folder)} (what is done is kept)"
    assert capsys.readouterr().err.splitlines()[-2:] == [told, "error: interrupted"]
    workers.sweep.update({"mine#01": 50.0})
    assert typed(f"{line} --resume --out {made}") == 0
    assert (made / "tuned.json").exists()


def test_an_interrupted_tuning_can_be_resumed(workers, folder, capsys):
    workers.sweep.update({"mine#01": 45.0})
    workers.confirm.update({"mine#01": KeyboardInterrupt()})
    assert typed(LINE) == 130
    assert not (folder / "run" / "tuned.json").exists()
    before = len(workers.tried)
    workers.confirm.update({"mine#01": 45.0})
    assert typed(LINE) == 2
    assert "run/mine/sweep/results.jsonl exists; --resume goes on with it" in capsys.readouterr().err
    assert typed(f"{LINE} --resume") == 0
    assert len(workers.tried) == before + 5  # the sweep is not made again
    assert read_tuned("run/tuned.json").cases[0].config_name == "rows=2"


def test_other_configurations_cannot_be_resumed(workers, capsys):
    workers.sweep.update({"mine#01": 45.0})
    workers.confirm.update({"mine#01": KeyboardInterrupt()})
    assert typed(LINE) == 130
    workers.offer = Offer({name.replace("2", "3"): config for name, config in CONFIGS.items()})
    assert typed(f"{LINE} --resume") == 2
    message = "error: mine offers other configurations than those measured in run/mine/sweep; start a new tuning\n"
    assert capsys.readouterr().err.endswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--processes 0", "--processes 0: must be at least 1"),
        ("--dtype int8", "--dtype int8: not one of bf16, fp16, fp32"),
        ("--flush none", "No such option: --flush; try `normbwd tune --help`"),
    ],
)
def test_a_bad_line_is_answered_without_a_worker(monkeypatch, folder, capsys, options, message):
    monkeypatch.setattr(process, "WorkerProcess", None)
    assert typed(f"{LINE} {options}") == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert list(folder.iterdir()) == []


MANY = {str(number): number for number in range(MOST_CONFIGS + 2)}


@pytest.mark.parametrize(
    ("offer", "code", "message"),
    [
        (Offer(), 2, "mine offers no configurations of these cases; docs/tune.md says how an adapter does"),
        (
            Offer({"default": 1}),
            2,
            "mine offers no configurations of these cases; docs/tune.md says how an adapter does",
        ),
        (Offer(refusal="interpreted"), 4, "mine cannot be tuned here: interpreted"),
        (Offer(fault="unset IT"), 2, "mine cannot be tuned for rms-8192x4096-bf16: unset IT"),
        (
            Offer(MANY),
            2,
            "mine offers 65 configurations for rms-8192x4096-bf16 beside its default, and 64 can be measured; "
            "let its configs(case) offer fewer",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused(workers, folder, capsys, offer, code, message):
    workers.offer = offer
    assert typed(LINE) == code
    assert capsys.readouterr().err.endswith(f"error: {message}\n")
    assert list(folder.iterdir()) == []


def test_what_is_missing_cannot_be_tuned(workers, capsys):
    workers.missing = "not installed: mine"
    assert typed(LINE) == 4
    assert capsys.readouterr().err.endswith("error: mine cannot be tuned here: not installed: mine\n")


def test_without_a_name_the_in_house_kernel_is_tuned(workers, capsys):
    workers.offer = Offer(refusal="not here")
    assert typed(LINE.replace("--impls mine", "")) == 4
    assert capsys.readouterr().err.endswith("error: triton-inhouse cannot be tuned here: not here\n")


def test_a_default_that_fails_everywhere_is_the_exit_code(workers):
    workers.sweep.update({DEFAULT: "crashed"})
    assert typed(LINE) == 1
    (case,) = read_tuned("run/tuned.json").cases
    assert (case.default_us, case.why) == (None, "not measured: mine is crashed: spills 12 registers")
