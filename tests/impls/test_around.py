"""What a model has around a norm, in Triton's interpreter: each gradient right and rounded once, in every regime."""

import dataclasses

import pytest
import torch

from harness.cases import make_inputs
from harness.cases.variants import with_features
from impls import triton_inhouse
from impls.inhouse.backward import backward_with_extras
from impls.inhouse.regimes.choice import choose
from impls.inhouse.regimes.few_rows import FewRows
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.regimes.shared import Shared
from impls.inhouse.regimes.two_pass import TwoPass
from impls.inhouse.tensors import Extras
from tests.impls.inhouse_cases import cpu_case, gradients, gradients_with_extras, ratios_with_extras
from tests.impls.problems import H200, problem

NARROW = OnePass(rows=8, chunks=2, cols=64, warps=4, programs=2, fold=False)
FLAT = OnePass(rows=4, chunks=1, cols=128, warps=2, programs=2, fold=True, stages=1)
REREAD = dataclasses.replace(FLAT, chunks=2, cols=64, reread=True)
FEW = FewRows(rows=4, cols=64, chunks=2, row_cols=64, warps=4)
WIDE = TwoPass(rows=2, cols=64, warps=4, groups=2, sum_cols=128)
# By turns, so that each regime meets each feature and each norm, but not all of all.
TRIED = [
    ("rms", ("residual",), NARROW),
    ("layer", ("residual",), FLAT),
    ("layer", ("residual",), FEW),
    ("rms", ("residual",), WIDE),
    ("layer", ("dropout",), NARROW),
    ("rms", ("dropout",), FEW),
    ("layer", ("dropout", "parallel-tied"), WIDE),
    ("layer", ("parallel",), NARROW),
    ("rms", ("parallel",), FLAT),
    ("layer", ("parallel",), FEW),
    ("layer", ("parallel", "residual"), WIDE),
    ("rms", ("gated",), NARROW),
    ("layer", ("gated",), FEW),
    ("layer", ("gated", "dropout"), WIDE),
    ("rms", ("gated",), REREAD),
    ("layer", ("gated-norm-first",), FLAT),
    ("rms", ("gated-norm-first",), FEW),
    ("layer", ("gated-norm-first", "parallel"), WIDE),
    ("rms", ("qk",), NARROW),
    ("layer", ("qk",), FEW),
    ("layer", ("qk", "residual"), WIDE),
]


def case_with(norm, features, rows=None, cols=105, **options):
    rows = (39 if "qk" in features else 12) if rows is None else rows  # 3 tokens of 13 heads
    implied = {"residual"} if {"dropout", "parallel-tied"} & set(features) else set()
    options = {"bias": norm == "layer"} | options
    return with_features(cpu_case(norm, rows, cols, **options), tuple(sorted({*features, *implied})))


@pytest.mark.parametrize(("norm", "features", "launch"), TRIED, ids=str)
def test_each_gradient_is_right_in_every_regime(norm, features, launch):
    """The same bits too where no gradient of a parameter is wanted."""
    inputs = make_inputs(case_with(norm, features), seed=1)
    found = gradients_with_extras(inputs, launch=launch)
    ratios = ratios_with_extras(inputs, found)
    assert all(ratio <= 1.05 for ratio in ratios.values()), ratios
    alone = gradients_with_extras(inputs, launch=launch, dx_alone=True)
    assert [*alone] == [name for name in found if not name.startswith(("dweight", "dbias"))]
    assert all(torch.equal(gradient, found[name]) for name, gradient in alone.items())


@pytest.mark.parametrize(
    ("features", "options"),
    [
        (("residual", "parallel"), {"weight": False, "bias": False}),
        (("gated-norm-first",), {"weight": False, "bias": False}),
        (("residual", "gated"), {"zero_centred": True}),
        (("residual", "parallel"), {"weight_dtype": "fp32", "dtype": "fp16"}),
        (("residual", "gated-norm-first"), {"weight_dtype": "bf16", "dtype": "fp16", "zero_centred": True}),
    ],
)
def test_with_other_parameters(features, options):
    inputs = make_inputs(case_with("layer", features, **options), seed=2)
    ratios = ratios_with_extras(inputs, gradients_with_extras(inputs))
    for name, ratio in ratios.items():
        assert ratio <= (1.05 if gradient_is_short(inputs, name) else 16), ratios


def gradient_is_short(inputs, name):
    """Whether it is rounded to 16 bits; in fp32 it is also summed."""
    dtype = inputs.case.weight_dtype if name.startswith(("dweight", "dbias")) else inputs.case.dtype
    return dtype != "fp32"


@pytest.mark.parametrize("features", [("gated",), ("gated-norm-first",)])
def test_a_gate_that_is_read_again_is_the_gate_that_was_held(features):
    inputs = make_inputs(case_with("layer", features), seed=8)
    held = gradients_with_extras(inputs, launch=dataclasses.replace(REREAD, reread=False))
    for name, gradient in gradients_with_extras(inputs, launch=REREAD).items():
        assert torch.equal(gradient, held[name])


def test_what_dropout_leaves_of_no_number_is_none():
    """As in PyTorch, where 0 * NaN is NaN."""
    inputs = make_inputs(case_with("rms", ("dropout",)), seed=9)
    inputs.dy[3, 5] = float("nan")
    dropped = inputs.mask[3] == 0
    assert dropped.any()
    assert gradients_with_extras(inputs)["dbranch"][3][dropped].isnan().all()


@pytest.mark.parametrize("launch", [NARROW, WIDE])
def test_the_sum_with_the_residual_is_rounded_once(launch):
    """dres a thousand times the gradient: with two roundings of dx it would be as good, with a small one it is not."""
    inputs = make_inputs(case_with("rms", ("residual",)), seed=4)
    once = ratios_with_extras(inputs, gradients_with_extras(inputs, launch=launch))["dx"]
    twice = (gradients(inputs, launch=launch)[0] + inputs.dres).to(inputs.x.dtype)
    assert once <= 1.05 < ratios_with_extras(inputs, gradients_with_extras(inputs, launch=launch) | {"dx": twice})["dx"]


@pytest.mark.parametrize("launch", [NARROW, FEW, WIDE])
def test_rows_of_heads_are_read_where_they_lie(launch):
    """The bits of contiguous heads; dy may lie in a wider tensor too."""
    inputs = make_inputs(case_with("rms", ("qk",)), seed=6)
    tokens, heads, cols = inputs.x.shape
    assert not inputs.x.is_contiguous()
    wide = torch.full((tokens, heads + 3, cols), float("nan"), dtype=inputs.x.dtype)
    dy = wide[:, 1 : 1 + heads].copy_(inputs.dy)
    found = gradients(dataclasses.replace(inputs, dy=dy), launch=launch)
    flat = dataclasses.replace(
        inputs, x=inputs.x.reshape(-1, cols).contiguous(), dy=inputs.dy.reshape(-1, cols).contiguous()
    )
    wanted = gradients(flat, launch=launch)
    assert torch.equal(found[0].view(-1, cols), wanted[0])
    assert torch.equal(found[1], wanted[1])


def test_no_rows_give_zero_parameter_gradients():
    found = gradients_with_extras(make_inputs(case_with("layer", ("parallel",), rows=0), seed=8))
    for name in ("dweight", "dbias", "dweight1", "dbias1"):
        assert torch.equal(found[name], torch.zeros(105, dtype=torch.bfloat16))


FAULTS = {
    "the residual is forgotten": (("residual",), {"dres": torch.zeros_like}, {"dx"}),
    "the gate is on the other side": (("gated",), {"norm_first": lambda _: True}, {"dx", "dz"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault):
    features, changes, wrong = FAULTS[fault]
    inputs = make_inputs(case_with("rms", features), seed=9)
    extras = triton_inhouse.extras_of(inputs)
    extras = extras._replace(**{name: change(getattr(extras, name)) for name, change in changes.items()})
    ratios = ratios_with_extras(inputs, gradients_with_extras(inputs, extras=extras))
    assert {name for name, ratio in ratios.items() if ratio > 1.05} == wrong


def refused():
    inputs = make_inputs(case_with("layer", ("dropout", "parallel")), seed=11)
    given = inputs.dy, inputs.x, inputs.weight, inputs.mean, inputs.rstd
    like, weight, mask = inputs.dy, inputs.weight, inputs.mask
    yield "x's shape", given, Extras(dres=like[:3])
    yield "alike", given, Extras(dres=like.float())
    yield "uint8 or bool", given, Extras(mask=mask.float(), p=0.1)
    yield "uint8 or bool", given, Extras(mask=mask[:, :1].expand(mask.shape), p=0.1)
    yield "needs a mask", given, Extras(p=0.1)
    yield "needs a mask", given, Extras(mask1=mask)
    yield "below 1", given, Extras(mask=mask, p=1.0)
    yield "has dy1", given, Extras(weight1=weight)
    yield "has dy1", given, Extras(dy1=like)
    yield "needs z", given, Extras(norm_first=True)
    yield "needs the bias", given, Extras(z=like, norm_first=True)
    yield "unit column stride", given, Extras(z=like.T.contiguous().T)
    apart = torch.zeros(2, 2, 3, 8, dtype=torch.bfloat16)[:, :1].expand(2, 2, 3, 8)
    yield "no rows of equal distance", (apart, apart, None, None, inputs.rstd), Extras()


@pytest.mark.parametrize(("message", "given", "extras"), [*refused()])
def test_what_does_not_fit_is_refused(message, given, extras):
    with pytest.raises(ValueError, match=message):
        backward_with_extras(*given, extras, has_bias=given[2] is not None)


def test_a_launch_follows_what_is_read_and_summed():
    """More bytes an element are fewer tiles in flight where they would not fit; two norms have twice the sums."""
    plain, parallel = problem(4096, norm="layer"), problem(4096, norm="layer", extras=("dy1",))
    assert (plain.accumulators, parallel.accumulators) == (2, 4)
    assert (plain.read_bytes, problem(4096, extras=("dres", "mask")).read_bytes) == (4, 7)
    for extras in (("dres",), ("dres", "mask", "mask1"), ("dy1",), ("dres", "dy1"), ("z",)):
        for cols in (128, 1024, 4096, 8192, 12288, 16384, 16387, 131072):
            for norm in ("rms", "layer"):
                asked = problem(cols, norm=norm, extras=extras)
                launch = choose(asked, H200)
                assert launch.violation(asked, H200) is None, (launch, asked)
                assert not isinstance(launch, Shared) or set(extras) <= {"dres", "dy1"}
