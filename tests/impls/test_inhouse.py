"""The in-house kernels' maths, in Triton's interpreter: right, rounded once, reproducible, and refusing the rest."""

import dataclasses
from itertools import product

import pytest
import torch

from harness.cases import make_inputs
from impls.inhouse import backward
from impls.inhouse.backward import norm_backward
from impls.inhouse.regimes import shared
from impls.inhouse.regimes.few_rows import FewRows
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.regimes.two_pass import TwoPass
from tests.impls.inhouse_cases import check, cpu_case, gradients, reference, rho

WIDE = TwoPass(rows=2, cols=64, warps=4, groups=3, sum_cols=128)
FEW = FewRows(rows=4, cols=64, chunks=4, row_cols=64, warps=4)


PARAMETERS = [{}, {"zero_centred": True}, {"weight": False}]


NORMS = [("rms", False, parameters) for parameters in PARAMETERS]
NORMS += [("layer", False, parameters) for parameters in PARAMETERS]
NORMS += [("layer", True, parameters) for parameters in PARAMETERS if parameters.get("weight", True)]


@pytest.mark.parametrize(("rows", "cols"), [(7, 600), (33, 17)])  # few for what a CPU looks like, and many
@pytest.mark.parametrize(("norm", "bias", "parameters"), NORMS, ids=str)
def test_every_norm_with_every_parameter(norm, bias, parameters, rows, cols):
    check(make_inputs(cpu_case(norm, rows, cols, bias=bias, **parameters), seed=1))


@pytest.mark.parametrize(("dtype", "weight_dtype"), [*product(("bf16", "fp16", "fp32"), repeat=2)])
def test_weight_may_have_another_dtype_than_x(dtype, weight_dtype):
    check(make_inputs(cpu_case("layer", 7, 256, dtype=dtype, weight_dtype=weight_dtype, bias=True), seed=2))


@pytest.mark.parametrize(("rows", "cols"), [(1, 17), (1, 1000), (3, 1024), (7, 2880), (2, 8192), (2, 9000)])
def test_the_launch_of_each_width_is_right(rows, cols):
    inputs = make_inputs(cpu_case("rms", rows, cols), seed=3)
    check(inputs)


@pytest.mark.parametrize("rows", [1, 65])
def test_one_column_cancels_to_almost_nothing(rows):
    """With one column xhat is near 1, and dx is what fp32 leaves of a difference of equals: bounded, not relative."""
    inputs = make_inputs(cpu_case("rms", rows, 1), seed=3)
    dx, dweight, _ = gradients(inputs)
    wanted_dx, wanted_dweight, _, _ = reference(inputs)
    assert (dx.double() - wanted_dx).abs().max() <= 2**-8 * wanted_dx.abs().max() + 2**-20 * inputs.rstd.max()
    assert rho(dweight, wanted_dweight) <= 1.05


@pytest.mark.parametrize(("norm", "bias"), [("rms", False), ("layer", True)])
@pytest.mark.parametrize(
    "launch",
    [
        OnePass(rows=8, chunks=3, cols=64, warps=4, programs=2, fold=False),
        OnePass(rows=4, chunks=2, cols=128, warps=2, programs=3, fold=True, stages=1),
        WIDE,
        FEW,
    ],
    ids=lambda launch: f"{type(launch).__name__}-{launch.rows}x{launch.cols}",
)
def test_an_explicit_launch_is_honoured(norm, bias, launch):
    check(make_inputs(cpu_case(norm, 17, 190, bias=bias), seed=4), launch=launch)


@pytest.mark.parametrize("launch", [None, WIDE, FEW])
def test_rows_may_be_strided(launch):
    inputs = make_inputs(cpu_case("layer", 9, 190, bias=True), seed=5)
    wide = torch.full((9, 200), float("nan"), dtype=inputs.x.dtype)
    x, dy = wide[:, 3:193].copy_(inputs.x), wide.clone()[:, :190].copy_(inputs.dy)
    strided = gradients(dataclasses.replace(inputs, x=x, dy=dy), launch=launch)
    for got, wanted in zip(strided, gradients(inputs, launch=launch), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("launch", [None, WIDE, FEW])
def test_the_same_bits_again(launch):
    inputs = make_inputs(cpu_case("layer", 9, 140, bias=True), seed=8)
    first, second = gradients(inputs, launch=launch), gradients(inputs, launch=launch)
    assert all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("launch", [None, WIDE, FEW])
def test_a_row_of_nan_spoils_only_its_own_dx(launch):
    inputs = make_inputs(cpu_case("layer", 9, 190, bias=True), seed=9)
    clean = gradients(inputs, launch=launch)[0]
    inputs.dy[4] = float("nan")
    dx, dweight, dbias = gradients(inputs, launch=launch)
    others = [row for row in range(9) if row != 4]
    assert torch.equal(dx[others], clean[others])
    assert dx[4].isnan().all()
    assert dweight.isnan().all()
    assert dbias.isnan().all()


def test_a_row_correction_that_is_left_out_would_be_seen():
    """The planted fault: what `check` compares is not so forgiving that half of the formula could be missing."""
    inputs = make_inputs(cpu_case("layer", 17, 256, bias=True), seed=10)
    dx = gradients(inputs)[0]
    wrong = dx.float() + inputs.rstd[:, None] * (inputs.dy.float() * inputs.weight.float()).mean(1, keepdim=True)
    assert rho(dx, reference(inputs)[0]) <= 1.05 < rho(wrong.to(dx.dtype), reference(inputs)[0])


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_leading_dimensions_are_rows(norm):
    inputs = make_inputs(cpu_case(norm, 12, 40, bias=norm == "layer"), seed=12)
    flat = gradients(inputs)
    deep = gradients(dataclasses.replace(inputs, x=inputs.x.view(2, 3, 2, 40), dy=inputs.dy.view(2, 3, 2, 40)))
    assert deep[0].shape == (2, 3, 2, 40)
    assert torch.equal(deep[0].view(12, 40), flat[0])
    assert torch.equal(deep[1], flat[1])


def refused():
    inputs = make_inputs(cpu_case("layer", 4, 8, bias=True), seed=11)
    dy, x, weight, mean, rstd = inputs.dy, inputs.x, inputs.weight, inputs.mean, inputs.rstd
    tall = torch.zeros(2, 131073, dtype=torch.bfloat16)
    yield "131072 columns", (tall, tall, None, None, rstd[:2]), {}
    many = torch.zeros(1, 8, dtype=torch.bfloat16).expand(2**31 - 1023, 8)  # the last tile would end beyond 32 bits
    yield "at most 2147482624 rows", (many, many, None, None, rstd), {}
    yield "unit column stride", (dy, x.T.contiguous().T, weight, mean, rstd), {}
    yield "unit column stride", (dy.T.contiguous().T, x, weight, mean, rstd), {}
    yield "one shape", (dy[:2], x, weight, mean, rstd), {}
    yield "more leading dimensions", (dy[0], x[0], weight, mean, rstd), {}
    apart = torch.zeros(2, 2, 3, 8, dtype=torch.bfloat16)[:, :1].expand(2, 2, 3, 8)
    yield "no rows of equal distance", (apart, apart, weight, mean, rstd), {}
    yield "alike", (dy.float(), x, weight, mean, rstd), {}
    yield "alike", (dy.double(), x.double(), weight, mean, rstd), {}
    yield "weight must be bf16", (dy, x, weight.double(), mean, rstd), {}
    yield "weight must be contiguous", (dy, x, weight[:4], mean, rstd), {}
    yield "rstd must be fp32", (dy, x, weight, mean, rstd.double()), {}
    yield "mean must be contiguous", (dy, x, weight, mean.repeat(2)[::2], rstd), {}
    yield "needs a weight", (dy, x, None, mean, rstd), {"has_bias": True}
    yield "needs a weight", (dy, x, None, mean, rstd), {"zero_centred": True}
    yield "x's device", (dy, x, weight.to("meta"), mean, rstd), {}


@pytest.mark.parametrize(("message", "arguments", "options"), [*refused()])
def test_what_it_cannot_do_is_refused(message, arguments, options):
    with pytest.raises(ValueError, match=message):
        norm_backward(*arguments, **options)


@pytest.mark.parametrize(
    ("change", "in_pairs"),
    [
        (lambda x: x, True),
        (lambda x: torch.zeros(4, 11, dtype=x.dtype)[:, :10], False),  # odd distance between rows
        (lambda x: torch.zeros(4, 12, dtype=x.dtype)[:, 1:11], False),  # begins at an odd element
        (lambda x: torch.zeros(4, 12, dtype=x.dtype)[:, 2:12], True),
        (lambda x: torch.zeros(4, 9, dtype=x.dtype), False),
        (lambda x: x[:1].expand(4, 10), True),
    ],
)
def test_words_are_read_where_rows_begin_on_words(change, in_pairs, monkeypatch):
    asked = []
    monkeypatch.setattr(backward, "choose", lambda problem, gpu: asked.append(problem.in_pairs))
    x = change(torch.zeros(4, 10, dtype=torch.bfloat16))
    plain = torch.zeros(4, x.shape[1], dtype=torch.bfloat16)
    backward.choose_for(plain, x, None, False, layer=False)
    backward.choose_for(x, plain, None, False, layer=True)
    assert asked == [in_pairs, in_pairs]


def test_words_are_told_by_the_address_alone():
    """In memory that begins on half a word, as another library's may, an odd element begins a whole one."""
    memory = torch.arange(33, dtype=torch.int16).untyped_storage()[2:]
    tensor = torch.empty(0, dtype=torch.bfloat16).set_(memory, 1, (4, 6), (8, 1))
    assert (tensor.storage_offset(), tensor.data_ptr() % 4) == (1, 0)
    words = shared._as_pairs(tensor)
    assert (words.data_ptr(), words.shape, words.stride()) == (tensor.data_ptr(), (4, 3), (4, 1))
    assert words.dtype == torch.int32
