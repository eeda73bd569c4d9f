from dataclasses import replace

import pytest
import torch

from harness.cases import NormCase, make_inputs, statistics
from harness.cases.guards import GUARD, GUARD_BYTES, place, whole_buffer
from harness.cases.input_kinds import INPUT_KINDS

LAYER = NormCase("layer", 16, 24, bias=True, device="cpu")
VALUES = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("layout", "name", "strides"),
    [
        ("contiguous", "x", (4, 1)),
        ("strided x", "x", (8, 1)),
        ("strided x", "dy", (4, 1)),
        ("transposed dy", "dy", (1, 3)),
        ("transposed dy", "x", (4, 1)),
        ("misaligned", "x", (4, 1)),
        ("misaligned", "dy", (4, 1)),
    ],
)
def test_a_layout_changes_addresses_not_numbers(layout, name, strides):
    placed = place(VALUES, layout, name)
    assert placed.stride() == strides
    assert torch.equal(placed, VALUES)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_guards_lie_on_both_sides_and_are_no_number(dtype):
    placed = place(VALUES.to(dtype), "strided x", "x")
    raw = whole_buffer(placed).view(torch.uint8)
    assert (raw[:GUARD_BYTES] == GUARD).all()
    assert (raw[-GUARD_BYTES:] == GUARD).all()
    gap = placed.as_strided((2, 4), (8, 1), placed.storage_offset() + 4)
    assert gap.isnan().all()


@pytest.mark.parametrize("kind", INPUT_KINDS)
def test_every_kind_is_drawn_for_every_shape(kind):
    for rows, cols in ((0, 8), (1, 1), (2, 3), (33, 129)):
        case = replace(LAYER, rows=rows, cols=cols, inputs=kind)
        one, other = make_inputs(case, 1), make_inputs(case, 1)
        for name in ("x", "dy", "weight", "bias", "mean", "rstd"):
            assert torch.equal(whole_buffer(getattr(one, name)), whole_buffer(getattr(other, name)))
        assert one.x.reshape(-1, cols).shape == (rows, cols)


def made(kind, **more):
    return make_inputs(replace(LAYER, rows=64, cols=256, inputs=kind, **more), 3)


def test_what_kinds_are():
    correlated = made("correlated")
    mean, rstd = statistics(correlated.x, correlated.case)
    xhat = (correlated.x.double() - mean[:, None]) * rstd[:, None]
    assert float((xhat * correlated.dy.double()).mean()) == pytest.approx(3, abs=0.05)
    assert float(made("mean-1000").x.double().mean()) == pytest.approx(1000, rel=1e-3)
    assert int((made("zero-weights").weight == 0).sum()) == 64
    tiny = made("tiny-weights").weight.abs()
    assert int((tiny <= 1e-5).sum()) == 48
    assert int((tiny < 2e-3).sum()) == 64
    assert float(made("large-bias").bias.min()) > 99
    outliers = made("outliers")
    assert float(outliers.x.abs().amax(0)[3]) > 50 > float(outliers.x.abs().amax(0)[4])
    assert float(outliers.dy.abs().amax(0)[5]) > 50 > float(outliers.dy.abs().amax(0)[6])
    assert (made("constant-rows").x[::7] == 0.5).all()
    assert not made("zero-rows").x[::7].any()
    for name, exponent in (("large-x", 55), ("small-x", -60)):
        assert float(made(name).x.double().std()) == pytest.approx(2.0**exponent, rel=0.1)
    for name, exponent in (("large-dy", 60), ("small-dy", -60)):
        assert float(made(name).dy.double().std()) == pytest.approx(2.0**exponent, rel=0.1)


@pytest.mark.parametrize("dtype", ["bf16", "fp32", "fp16"])
def test_subnormal_inputs_are_subnormal_and_not_all_zero(dtype):
    inputs = made("subnormal-dy", dtype=dtype, weight_dtype=dtype)
    size = inputs.dy.double().abs()
    assert float(size.max()) < torch.finfo(inputs.dy.dtype).tiny
    assert int((size > 0).sum()) > 0.8 * size.numel()
    assert not made("subnormal-x", dtype=dtype, weight_dtype=dtype).dy.eq(inputs.dy).all()


@pytest.mark.parametrize("kind", ["nan-x", "inf-x", "nan-dy", "inf-dy"])
def test_one_element_is_spoilt(kind):
    inputs = made(kind)
    spoilt = ~getattr(inputs, kind.partition("-")[2]).isfinite()
    assert int(spoilt.sum()) == 1
    assert spoilt[32].any()
