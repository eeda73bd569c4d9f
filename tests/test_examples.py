"""The examples run as they are written."""

import importlib.util
import re
from pathlib import Path

import pytest

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
    monkeypatch.setattr(
        example, "rms_norm", lambda x, weight, eps: example.nn.functional.rms_norm(x, x.shape[-1:]) * 0.5
    )
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
