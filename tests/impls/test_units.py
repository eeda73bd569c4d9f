"""Columns and strides that are counted in units: what divides them is told to Triton, and the bits stay the same."""

import dataclasses
from itertools import cycle

import pytest
import torch

from harness.cases import make_inputs
from impls import triton_inhouse
from impls.inhouse import tensors
from impls.inhouse.tensors import CallTensors, Extras, NormGradients
from tests.impls.inhouse_cases import gradients_with_extras
from tests.impls.test_around import FEW, FLAT, NARROW, TRIED, WIDE, case_with


def call(cols, x_stride=None, dy_stride=None, heads=None, **extras):
    """A call of 4 rows, or of 4 tokens; strides are those of contiguous rows where none is given."""

    def rows(stride):
        shape, strides = ((4, cols), (stride or cols, 1)) if heads is None else ((4, 2, cols), (stride, heads, 1))
        return torch.empty_strided(shape, strides, device="meta")

    x, vector = rows(x_stride), torch.empty(cols, device="meta")
    beside = Extras(**{name: rows(stride) for name, stride in extras.items()})
    dx = torch.empty(x.shape[:-1].numel(), cols, device="meta")
    gradients = NormGradients(dx, vector, None)
    return CallTensors(gradients, rows(dy_stride or x_stride), x, vector, None, vector, False, beside)


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ({"cols": 4096}, 1),  # Triton sees for itself that 16 divides it
        ({"cols": 2648}, 8),
        ({"cols": 2652}, 4),
        ({"cols": 2650}, 2),
        ({"cols": 2649}, 1),
        ({"cols": 4096, "x_stride": 4104}, 8),
        ({"cols": 4096, "x_stride": 4104, "dy_stride": 4100}, 4),
        ({"cols": 4096, "x_stride": 0}, 1),
        ({"cols": 2648, "dres": 2652}, 4),
        ({"cols": 2648, "dy1": 2648, "z": 2650}, 2),
        ({"cols": 72, "x_stride": 3 * 72, "heads": 72}, 8),
        ({"cols": 72, "x_stride": 3 * 74, "heads": 74}, 2),
        ({"cols": 2648, "x_stride": (1 << 31) - 8}, 8),
        ({"cols": 2648, "x_stride": 1 << 31}, 1),  # in 64 bits, which the product with 8 would not have
    ],
)
def test_the_unit_divides_columns_and_strides(given, unit):
    made = call(**given)
    assert made.unit == unit
    _, cols, dy_stride, x_stride = made.sizes
    assert (cols * unit, dy_stride * unit, x_stride * unit) == (made.shape[1], made.dy.stride(0), made.x.stride(0))
    beside = made.extra_operands()
    for name in {"dres", "dy1", "z"} & given.keys():
        assert getattr(beside, f"{name}_stride") * unit == given[name]
    if "heads" in given:
        assert beside.x_head_stride * unit == beside.dy_head_stride * unit == given["heads"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "features", "launch", "cols"),
    [(*tried, cols) for tried, cols in zip(TRIED, cycle((104, 100, 102)), strict=False)],
    ids=str,
)
def test_the_same_bits_whatever_they_are_counted_in(norm, features, launch, cols, monkeypatch):
    inputs = make_inputs(case_with(norm, features, cols=cols), seed=1)
    found = gradients_with_extras(inputs, launch=launch)
    monkeypatch.setattr(tensors, "WIDEST_UNIT", 1)
    for name, gradient in gradients_with_extras(inputs, launch=launch).items():
        assert torch.equal(gradient, found[name]), name


def strided(inputs, apart):
    """The same numbers in rows at other distances, each tensor's own, between numbers that nobody may read."""
    rows, cols = inputs.x.shape
    extras = triton_inhouse.extras_of(inputs)
    given = {"x": inputs.x, "dy": inputs.dy, "dres": extras.dres, "z": extras.z}
    spread = {
        name: torch.full((rows, cols + number * apart), float("nan"), dtype=inputs.x.dtype)[:, :cols].copy_(tensor)
        for number, (name, tensor) in enumerate(given.items(), 1)
    }
    return dataclasses.replace(inputs, x=spread.pop("x"), dy=spread.pop("dy")), extras._replace(**spread)


@pytest.mark.parametrize(
    "launch", [FLAT, *(pytest.param(each, marks=pytest.mark.slow) for each in (NARROW, FEW, WIDE))], ids=str
)
def test_each_stride_is_its_own(launch, monkeypatch):
    inputs = make_inputs(case_with("layer", ("residual", "gated"), cols=104), seed=2)
    wanted = gradients_with_extras(inputs, launch=launch)
    apart, extras = strided(inputs, apart=8)
    found = gradients_with_extras(apart, extras=extras, launch=launch)
    for name, gradient in wanted.items():
        assert torch.equal(found[name], gradient), name
    # The planted fault: one stride is a unit off, so that numbers between the rows are read.
    right = CallTensors.sizes.fget
    monkeypatch.setattr(CallTensors, "sizes", property(lambda self: (*right(self)[:3], right(self)[3] - 1)))
    assert not torch.equal(gradients_with_extras(apart, extras=extras, launch=launch)["dx"], wanted["dx"])
