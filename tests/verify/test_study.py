from dataclasses import replace

import pytest
import torch

from harness.cases import NormCase, make_inputs
from harness.verify.study import OTHER, SAME, fp32_errors, invariance
from tests.mutants.maths import gradients, implementation
from tests.wording import worded

RMS = NormCase("rms", 64, 128, device="cpu")
LAYER = NormCase("layer", 64, 128, bias=True, device="cpu")


@pytest.mark.parametrize("case", [RMS, LAYER], ids=lambda case: case.norm)
def test_fp32_error_of_an_honest_backward(case):
    honest = implementation("honest", lambda inputs: lambda: gradients(inputs, torch.float32))
    errors = fp32_errors(honest, make_inputs(case, 1))
    assert set(errors) == {"dx", "dweight"} | ({"dbias"} if case.bias else set())
    assert all(error < 1e-6 for error in errors.values())


def test_lost_precision_shows_in_fp32():
    def prepare(inputs):
        def backward():
            grads = gradients(inputs)
            return replace(grads, dweight=grads.dweight.bfloat16().to(grads.dweight.dtype))

        return backward

    errors = fp32_errors(implementation("low", prepare), make_inputs(RMS, 1))
    assert errors["dx"] < 1e-6 < 1e-3 < errors["dweight"] < 3e-3


def test_fp32_is_compared_only_where_new_and_supported():
    narrow = implementation("narrow", unsupported=lambda case: "no" if case.dtype == "fp32" else None)
    wide = replace(RMS, dtype="fp32", weight_dtype="fp32")
    assert fp32_errors(implementation("honest"), make_inputs(wide, 1)) == {}
    assert fp32_errors(narrow, make_inputs(RMS, 1)) == {}


def test_honest_backward_is_batch_invariant():
    inputs = make_inputs(LAYER, 1)
    assert invariance(implementation("honest"), inputs, gradients(inputs)) == dict.fromkeys(
        ("dx of half the batch", "dweight with zero rows appended"), SAME
    )


def test_batch_dependence_is_reported():
    def prepare(inputs):
        def backward():
            grads = gradients(inputs)
            factor = 1 + inputs.case.rows / 1000
            return replace(grads, dx=grads.dx * factor, dweight=grads.dweight * factor)

        return backward

    inputs = make_inputs(RMS, 1)
    first = prepare(inputs)()
    assert set(invariance(implementation("batch", prepare), inputs, first).values()) == {OTHER}


def test_invariance_that_cannot_run_says_why():
    def unsupported(case):
        return None if case.rows == 64 else "64 rows alone"

    def prepare(inputs):
        if inputs.case.rows != 64:
            raise RuntimeError("no")
        return lambda: gradients(inputs)

    inputs = make_inputs(RMS, 1)
    refuses, raises = implementation("refuses", unsupported=unsupported), implementation("raises", prepare)
    assert set(map(worded, invariance(refuses, inputs, gradients(inputs)).values())) == {"not run: 64 rows alone"}
    assert set(map(worded, invariance(raises, inputs, gradients(inputs)).values())) == {"not run: RuntimeError"}
