"""The examples run as they are written."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.fake_device import FakeDevice

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_model_trains_alike_with_either_norm(norm, capsys):
    load("training_step").main(
        ["--device", "cpu", "--norm", norm, "--cols", "64", "--tokens", "32", "--layers", "1", "--steps", "3"]
    )
    steps = re.findall(r"^ +(\d) +([\d.]+) +([\d.]+) +([+-][\d.]+)$", capsys.readouterr().out, re.MULTILINE)
    assert [int(step) for step, *_ in steps] == [0, 1, 2]
    theirs, ours = ([float(step[column]) for step in steps] for column in (1, 2))
    assert theirs == pytest.approx(ours, abs=2e-5)
    assert theirs[2] < theirs[0]  # it learns, so that a gradient that is 0 would be seen


def test_wrong_gradient_trains_otherwise(monkeypatch, capsys):
    """The planted fault: weights of norms that learn nothing."""
    example = load("training_step")

    def rms_norm(x, weight, eps, residual, return_residual):
        total = x if residual is None else x + residual
        return example.nn.functional.rms_norm(total, x.shape[-1:]) * 0.5, total

    monkeypatch.setattr(example, "rms_norm", rms_norm)
    example.main(["--device", "cpu", "--cols", "64", "--tokens", "32", "--layers", "1", "--steps", "3"])
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert abs(float(last[3])) > 1e-3


SMALL = ["--device", "cpu", "--cols", "32", "--tokens", "16", "--layers", "1", "--steps", "1"]


def test_model_is_compiled_if_asked(monkeypatch, capsys):
    example, compiled = load("training_step"), []
    monkeypatch.setattr(example.torch, "compile", lambda model: compiled.append(type(model).__name__) or model)
    example.main(SMALL)
    assert compiled == []
    example.main([*SMALL, "--compile"])
    assert compiled == ["Model", "Model"]


def test_nothing_is_held_on_a_cpu(capsys):
    with pytest.raises(SystemExit) as stopped:
        load("training_step").main([*SMALL, "--beside", "8"])
    assert stopped.value.code == 2
    assert "--beside holds multiprocessors of a GPU; leave it out on a CPU" in capsys.readouterr().err


def test_other_kernel_begins_with_the_backward(monkeypatch):
    """By events of a clock that goes on by a millisecond at every record, and a backward that tells when it is."""
    example = load("training_step")
    happened = []

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            happened.append("mark")
            self.at_ms = len(happened)

        def elapsed_time(self, end):
            return end.at_ms - self.at_ms

    class Step(example.Step):
        def __init__(self):
            """Nothing to train."""

        def __call__(self, mark):
            for action in ("forward", "backward", "optimizer"):
                mark()
                happened.append(action)
            mark()

    monkeypatch.setattr(example, "TIMED_STEPS", 1)
    monkeypatch.setattr(example.torch.cuda, "Event", Event)
    monkeypatch.setattr(example.torch.cuda, "synchronize", lambda: happened.append("wait"))
    assert Step().times_us(lambda: happened.append("hold")) == (7000.0, 2000.0)
    assert happened == ["mark", "forward", "hold", "mark", "backward", "mark", "optimizer", "mark", "wait"]


def test_times_of_a_step_are_told(capsys):
    example = load("training_step")
    results = {
        "torch": example.Trained([], step_us=1000.4, beside_us=1500.0, norms_us=90.0, kernels_us=800.0),
        "in-house": example.Trained([], step_us=900.0, beside_us=1100.0, norms_us=45.0, kernels_us=700.0),
    }
    example.tell_times(results, 8)
    assert capsys.readouterr().out.splitlines() == [
        "torch: a step takes 1000 us, beside a kernel on 8 multiprocessors 1500 us",
        "torch: backward of norms 90 us of 800 us on the device, a step",
        "in-house: a step takes 900 us, beside a kernel on 8 multiprocessors 1100 us",
        "in-house: backward of norms 45 us of 700 us on the device, a step",
        "torch's backward of norms takes 2.00 times as long",
    ]
    results["torch"] = results["torch"]._replace(norms_us=0.0)  # as where the compiler made other kernels of it
    example.tell_times(results, 0)
    told = capsys.readouterr().out
    assert "beside" not in told
    assert "times as long" not in told


# ------------------------------------------------------------------------------------------------ beside an all-reduce


class Reduction:
    """An all-reduce that is still there when a backward has ended, or not."""

    def __init__(self, lasts=True, starts=True):
        self.lasts, self.starts, self.told = lasts, starts, []

    def occupy(self, programs, for_us):
        self.told.append(("occupy", programs, for_us))

    def started(self):
        return self.starts

    def state(self):
        return "running" if self.lasts else "over"

    def release(self):
        self.told.append("release")


def found_beside(reduction):
    example, device = load("all_reduce"), FakeDevice(lambda name, run: {"slow": 40.0, "fast": 10.0}[name])

    def beside(context, slowest_us):
        return example.Beside(device, reduction if context == "all-reduce" else Reduction(), 8, slowest_us)

    candidates = [device.candidate(name) for name in ("slow", "fast")]
    return example, example.timed(device, beside, candidates, 3)


def test_all_are_timed_beside_an_all_reduce():
    reduction = Reduction()
    example, found = found_beside(reduction)
    assert found["slow"] == dict.fromkeys(("cold", "beside:8", "beside:32", "all-reduce"), (40.0, 0))
    assert reduction.told == [("occupy", 8, 100.0 + 3000.0), "release"] * 2 * 5  # two of five warm up
    lines = example.lines_of(example.NormCase("rms", 8, 64), found)
    wanted = "cold 10.0 beside:8 10.0 x1.00 beside:32 10.0 x1.00 all-reduce 10.0 x1.00"
    assert " ".join(lines[1].split()[2:]) == wanted


@pytest.mark.parametrize("fault", [{"lasts": False}, {"starts": False}])
def test_a_sample_is_void_where_no_all_reduce_was_beside(fault):
    example, found = found_beside(Reduction(**fault))
    assert found["fast"]["all-reduce"] == (None, 3)
    assert found["fast"]["beside:8"] == (10.0, 0)
    assert "all-reduce all void (3 void)" in example.lines_of(example.NormCase("rms", 8, 64), found)[1]


def test_an_all_reduce_needs_two_gpus(monkeypatch, capsys):
    example = load("all_reduce")
    monkeypatch.setattr(example.torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SystemExit) as stopped:
        example.main([])
    assert stopped.value.code == 2
    assert "an all-reduce needs two GPUs, and here are 1" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_reduce(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)  # the other process looks for the module by its name
    import all_reduce

    reduction = all_reduce.AllReduce("gloo", "cpu", 1000)
    try:
        reduction.occupy(0, 1e9)
        assert reduction.started()
        reduction.release()
        assert reduction.state() == "over"
        assert not reduction.numbers.any()
    finally:
        reduction.close()
