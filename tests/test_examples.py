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
