"""Tuning an adapter from its file to the tuned file and back, with real verification and a scripted clock."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cases.tuned import read_tuned
from harness.devices.facts import DeviceFacts
from harness.records.file import load
from harness.run import process
from harness.worker import interleave, serve
from harness.worker.asking import record
from harness.worker.messages import Done, Hello
from tests.fake_device import FakeDevice
from tests.fake_worker import Ready
from tests.test_command_line import typed as typed_whole
from tests.wording import worded

pytestmark = pytest.mark.usefixtures("ranked_on_a_cpu")
CPU = DeviceFacts("cpu", "Some CPU", "x86_64", l2_bytes=1 << 20)
ADAPTER = """
'''A norm whose configurations take the time, and have the fault, that their names say.'''
from tests.mutants.maths import gradients
from tests.tune.test_tune_end_to_end import CLOCK

name = "mine"
requires = ()

def unsupported(case):
    return None

def configs(case):
    return {name: {"kind": name} for name in NAMES}

def prepare(inputs, config=None):
    kind, calls = (config or {"kind": "default"})["kind"], []

    def backward():
        calls.append(1)
        CLOCK.run(kind)
        grads = gradients(inputs)
        if kind == "wrong":
            grads.dx.mul_(1.5)
        if kind == "nondeterministic" and len(calls) % 2:
            grads.dx.view(-1)[0] *= 1 + 2.0**-23
        return grads

    return backward
"""


class Clock:
    """How long each configuration takes, in microseconds; `lucky` is fast until the winners are measured again."""

    def __init__(self):
        self.workers = 0
        self.last_us = 0.0

    def run(self, kind):
        times = {"default": 20.0, "wrong": 10.0, "nondeterministic": 10.0, "slower": 30.0, "faster": 15.0}
        times["lucky"] = 12.0 if self.workers <= 2 else 20.0  # the first worker lists, the second measures the sweep
        self.last_us = times[kind]


CLOCK = Clock()


class ScriptedDevice(FakeDevice):
    """Reads what the configuration that ran last is said to take."""

    def start(self):
        CLOCK.last_us = 5.0

    def elapsed_us(self):
        return CLOCK.last_us


class InProcess(Ready):
    """A worker in this process, which answers as a real one does."""

    def __init__(self, start, log):
        CLOCK.workers += 1
        self.known = serve.find_implementations(start)
        super().__init__(Hello([CPU], [record(item) for item in self.known.values()], {"torch": "2.11.0"}))

    def send(self, request):
        serve.answer(request, self.known, SimpleNamespace(send=self.events.append))
        assert isinstance(self.events[-1], Done)

    def kill(self):
        pass


@pytest.fixture
def tune(tmp_path, monkeypatch):
    """Tune an adapter with these configurations; its tuned file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "WorkerProcess", InProcess)
    monkeypatch.setattr(interleave, "make_device", lambda *_: ScriptedDevice())
    CLOCK.workers = 0

    def run(*names):
        (tmp_path / "mine.py").write_text(f"NAMES = {names!r}\n{ADAPTER}")
        assert typed("tune --impl mine.py --out tuned --processes 2") == 0
        return read_tuned("tuned/tuned.json")

    yield run
    read_tuned.cache_clear()


def typed(line):
    """Run a command line on one small case; its exit code."""
    return typed_whole(f"{line} --device cpu --shapes 16x32 --norm rms --quick --compile-ahead 0")


def test_only_a_right_deterministic_and_faster_one_wins(tune, capsys):
    file = tune("default", "wrong", "nondeterministic", "slower", "faster")
    (case,) = file.measured("mine")
    assert (case.config_name, case.config, case.tried) == ("faster", {"kind": "faster"}, 4)
    assert (case.default_us, case.best_us, case.speedup.processes) == (20.0, 15.0, 2)
    assert case.speedup.value == pytest.approx(20 / 15, rel=1e-3)
    sweep = load(Path("tuned/mine/sweep/results.jsonl"))
    assert {row.impl: row.status for row in sweep.rows if row.role == "impl"} == {
        "mine": "ok",
        "mine#01": "wrong",
        "mine#02": "nondeterministic",
        "mine#03": "ok",
        "mine#04": "ok",
    }
    assert len({row.timing.group for row in sweep.rows if row.timing}) == 1  # all in the same blocks
    assert len({len(row.timing.samples_us) for row in sweep.rows if row.timing}) == 1  # and as often
    assert "A faster configuration in 1 of 1 case." in capsys.readouterr().out


def test_bench_runs_what_was_tuned(tune, capsys):
    tune("default", "faster")
    assert typed("bench --impl mine.py --impls mine --tuned tuned/tuned.json --out bench") == 0
    rows = {row.impl: row for row in load(Path("bench/results.jsonl")).rows if row.role == "impl"}
    assert rows.keys() == {"mine", "mine@tuned"}
    assert worded(rows["mine@tuned"].notes) == ["configuration: faster, of tuned/tuned.json"]
    assert set(rows["mine@tuned"].timing.samples_us) == {15.0}
    assert set(rows["mine"].timing.samples_us) == {20.0}
    assert "mine@tuned" in capsys.readouterr().out


def test_a_tuned_file_of_another_device_is_refused(tune, capsys, monkeypatch):
    tune("default", "faster")
    text = Path("tuned/tuned.json").read_text().replace("Some CPU", "Another")
    Path("tuned/other.json").write_text(text)
    capsys.readouterr()
    assert typed("bench --impl mine.py --impls mine --tuned tuned/other.json --out bench") == 2
    message = "error: --tuned tuned/other.json belongs to Another, and this is Some CPU; run `normbwd tune` here\n"
    assert capsys.readouterr().err.endswith(message)
    assert not Path("bench").exists()
