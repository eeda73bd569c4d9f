import math
from dataclasses import replace

import pytest
import torch

from harness.cases import Grads, NormCase, make_inputs
from harness.verify.error_classes import classify, slack
from harness.verify.precision import Comparison, check, fault, malformed, to_be_converted
from tests.mutants.maths import gradients
from tests.wording import worded

RMS = NormCase("rms", 512, 256, device="cpu")
LAYER = NormCase("layer", 512, 256, bias=True, device="cpu")
RMS_FP32 = replace(RMS, dtype="fp32", weight_dtype="fp32")
LAYER_FP32 = replace(LAYER, dtype="fp32", weight_dtype="fp32")
ROUNDED_ONCE = [RMS, LAYER, *(replace(case, dtype="fp16", weight_dtype="fp16") for case in (RMS, LAYER))]


def classes(inputs, grads):
    return {name: tensor.error_class for name, tensor in check(inputs, grads).items()}


@pytest.mark.parametrize("case", ROUNDED_ONCE, ids=lambda case: case.key)
def test_one_final_rounding_is_1_00(case):
    for wide in (False, True):
        inputs = make_inputs(case, 3)
        checks = check(inputs, gradients(inputs, wide=wide))
        assert {f"{tensor.rho:.2f}" for tensor in checks.values()} == {"1.00"}
        assert {tensor.error_class for tensor in checks.values()} == {"exact"}
        unit = 2.0**-8 if case.dtype == "bf16" else 2.0**-11
        assert all(unit / 4 < tensor.relative_rms < unit for tensor in checks.values())


@pytest.mark.parametrize("case", ROUNDED_ONCE, ids=lambda case: case.key)
def test_fp32_arithmetic_and_one_rounding_is_exact(case):
    inputs = make_inputs(case, 1)
    assert set(classes(inputs, gradients(inputs, torch.float32)).values()) == {"exact"}


@pytest.mark.parametrize("case", [RMS_FP32, LAYER_FP32], ids=lambda case: case.key)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_bf16_result_in_an_fp32_tensor_is_wrong(case, dtype):
    inputs = make_inputs(case, 1)
    grads = gradients(inputs)
    narrow = Grads(*(t if t is None else t.to(dtype).float() for t in (grads.dx, grads.dweight, grads.dbias)))
    assert set(classes(inputs, narrow).values()) == {"wrong"}


@pytest.mark.parametrize("name", ["dx", "dweight", "dbias"])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_one_nan_or_inf_is_wrong(name, value):
    inputs = make_inputs(LAYER, 1)
    grads = gradients(inputs)
    getattr(grads, name).view(-1)[-1] = value
    checks = check(inputs, grads)
    assert (checks[name].rho, checks[name].relative_rms) == (math.inf, math.inf)
    assert [each for each, tensor in checks.items() if tensor.error_class == "wrong"] == [name]


def test_zero_centred_weight_without_one_is_wrong():
    inputs = make_inputs(replace(RMS, zero_centred=True), 1)
    assert set(classes(inputs, gradients(inputs)).values()) == {"exact"}
    forgetful = gradients(replace(inputs, case=RMS))
    assert classes(inputs, forgetful) == {"dx": "wrong", "dweight": "exact"}


def test_the_gradients_of_no_rows_are_zero():
    inputs = make_inputs(replace(LAYER, rows=0), 1)
    nothing = Grads(torch.empty(0, 256, dtype=torch.bfloat16), *(torch.zeros(256).bfloat16() for _ in range(2)))
    assert classes(inputs, nothing) == {"dx": "exact", "dweight": "exact", "dbias": "exact"}
    nothing.dbias[3] = 1
    assert classes(inputs, nothing)["dbias"] == "wrong"
    nothing.dbias[3] = math.nan
    assert classes(inputs, nothing)["dbias"] == "wrong"


@pytest.mark.parametrize(
    ("rho", "name"),
    [
        (0.0, "exact"),
        (1.05, "exact"),
        (1.0501, "one extra rounding"),
        (1.5, "one extra rounding"),
        (1.5001, "two"),
        (1.8, "two"),
        (1.8001, "three"),
        (2.1, "three"),
        (2.1001, "wrong"),
        (math.inf, "wrong"),
        (math.nan, "wrong"),
    ],
)
def test_the_classes_and_their_bounds(rho, name):
    assert classify(rho) == name


class Lazy(torch.Tensor):
    """A tensor that could put its work off until somebody looks."""


@pytest.mark.parametrize(
    ("name", "spoil", "fault"),
    [
        ("dbias", lambda t: None, "dbias is missing"),
        ("dweight", lambda t: None, "dweight is missing"),
        ("dx", lambda t: None, "dx is missing"),
        ("dx", lambda t: t.to_sparse(), "dx is a torch.sparse_coo tensor, not a dense one"),
        ("dx", lambda t: t.T, "dx has shape (256, 512) instead of (512, 256)"),
        ("dx", lambda t: t[:-1], "dx has shape (511, 256) instead of (512, 256)"),
        ("dweight", lambda t: t[None], "dweight has shape (1, 256) instead of (256,)"),
        ("dbias", lambda t: t.half(), "dbias is torch.float16 instead of torch.bfloat16"),
        ("dx", lambda t: t.double(), "dx is torch.float64 instead of torch.bfloat16"),
        ("dx", lambda t: t.as_subclass(Lazy), "dx is a Lazy, not a plain tensor"),
        ("dx", torch.nn.Parameter, "dx is a Parameter, not a plain tensor"),
        ("dweight", lambda t: t.tolist(), "dweight is a list, not a plain tensor"),
        ("dx", lambda t: t.to("meta"), "dx is on meta"),
    ],
)
def test_malformed_gradients_are_named(name, spoil, fault):
    inputs = make_inputs(LAYER, 1)
    grads = gradients(inputs)
    assert worded(malformed(inputs, replace(grads, **{name: spoil(getattr(grads, name))}))) == fault


def test_chance_exceeds_a_bound_with_alpha_at_most():
    """The model behind the bounds: two sums of squared rounding errors of so many elements, set beside each other."""
    generator = torch.Generator().manual_seed(2)
    for elements, cells in ((10, 1), (64, 1), (64, 20)):
        sums = (torch.rand(2, 20000, elements, generator=generator) - 0.5).square().sum(2)
        beyond = (sums[0] / sums[1]).sqrt() > slack(2.5 * elements, cells)
        assert float(beyond.double().mean()) < 1.5 * 0.05 / cells


def test_one_row_that_is_off_is_wrong():
    inputs = make_inputs(replace(RMS, rows=4096), 1)
    grads = gradients(inputs)
    grads.dx[7] = (grads.dx[7].double() * 1.015).bfloat16()
    checks = check(inputs, grads)
    checked = checks["dx"]
    assert classify(checked.rho) == "exact"
    assert checked.error_class == "wrong"
    assert checked.worst_row > 4
    assert worded(fault(checks)) == f"a row of dx is off by rho {checked.worst_row:.3g} (1 is one rounding)"


def test_errors_of_several_inputs_are_judged_together():
    together = Comparison(RMS)
    for seed in range(3):
        inputs = make_inputs(RMS, seed)
        grads = gradients(inputs)
        if seed == 2:
            grads.dweight[5] += 4
        together.add(inputs, grads)
    checked = together.judge(cells=1000)
    assert checked["dx"].error_class == "exact"
    assert checked["dweight"].error_class == "wrong"


@pytest.mark.parametrize("kind", ["nan-x", "inf-dy"])
def test_nan_row_spoils_itself_and_the_sums(kind):
    case = replace(LAYER, inputs=kind)
    inputs = make_inputs(case, 1)
    assert set(classes(inputs, gradients(inputs)).values()) == {"exact"}
    spoilt = gradients(inputs)
    assert not spoilt.dx[256].isfinite().any()
    spoilt.dweight.fill_(math.nan)  # all columns may be spoilt
    assert set(classes(inputs, spoilt).values()) == {"exact"}
    spoilt.dx[255, 3] = math.nan
    assert classes(inputs, spoilt)["dx"] == "wrong"
    swallowed = gradients(inputs)
    swallowed.dx[256] = 0
    assert classes(inputs, swallowed)["dx"] == "wrong"


def test_overflow_has_to_show():
    inputs = make_inputs(replace(RMS, dtype="fp16", weight_dtype="fp16"), 1)
    inputs.dy.mul_(60000 / float(inputs.dy.abs().max()))
    grads = gradients(inputs)
    assert not grads.dweight.isfinite().all()
    assert set(classes(inputs, grads).values()) == {"exact"}
    clipped = replace(grads, dweight=grads.dweight.clamp(-65504, 65504))
    assert classes(inputs, clipped)["dweight"] == "wrong"


def test_wider_gradients_are_accepted_and_noted():
    inputs = make_inputs(RMS, 1)
    grads = gradients(inputs)
    wide = replace(grads, dweight=grads.dweight.float())
    assert malformed(inputs, wide) is None
    assert to_be_converted(inputs, grads) == []
    assert worded(to_be_converted(inputs, wide)) == [
        "dweight is torch.float32 where torch.bfloat16 was asked for: accepted, and rounded before it is judged"
    ]


def test_gradients_that_are_strided_where_no_input_is_are_noted():
    inputs = make_inputs(RMS, 1)
    grads = gradients(inputs)
    strided = replace(grads, dx=grads.dx.t().contiguous().t())
    assert worded(to_be_converted(inputs, strided)) == [
        f"dx has strides (1, {RMS.rows}), though every input is contiguous: it may have to be copied"
    ]
    assert to_be_converted(make_inputs(replace(RMS, inputs="transposed-x"), 1), strided) == []
