"""A variant by a backward that lacks some of it: what is left to that backward, and what torch makes of the rest."""

from dataclasses import replace
from itertools import chain, combinations

import pytest
import torch

from harness.cases import NormCase, make_inputs
from harness.cases.input_kinds import INPUT_KINDS
from harness.cases.unfused import WithTorch, left_to, prepare
from harness.cases.variants import FEATURES, parse_variants, with_features
from harness.records.reason_texts import sentence
from harness.verify.precision import check
from tests.mutants.maths import gradients, implementation
from tests.mutants.variants import honest
from tests.worker.test_trial import Session

RMS = NormCase("rms", 24, 16, "fp32", "fp32", device="cpu")
LAYER = replace(RMS, norm="layer", bias=True)
COMBINED = [
    *FEATURES,
    "parallel+residual",
    "dropout+parallel",
    "dropout+parallel-tied",
    "gated+residual+dropout",
    "gated+parallel+qk",
    "gated-norm-first+parallel+dropout",
]


def of(text, case=RMS):
    (features,) = parse_variants(text)
    return with_features(case, features)


def subsets(features):
    return chain.from_iterable(combinations(features, n) for n in range(len(features) + 1))


@pytest.mark.parametrize("plain", [RMS, LAYER, replace(RMS, weight=False), replace(LAYER, zero_centred=True)])
@pytest.mark.parametrize("text", COMBINED)
def test_whatever_is_handled_the_whole_is_right(text, plain):
    case = of(text, plain)
    for handled in subsets(case.features):
        seen = []

        def inner(inputs, seen=seen):
            seen.append(inputs.case)
            return honest(inputs)

        inputs = make_inputs(case, 3)
        checks = check(inputs, prepare(inputs, inner, handled)())
        assert {name: each.error_class for name, each in checks.items()} == dict.fromkeys(checks, "exact"), handled
        assert seen[0] == left_to(case, handled)
        assert set(seen[0].features) <= set(handled)
        assert len(seen) == 1 + ("parallel" in case.features and "parallel" not in seen[0].features)


@pytest.mark.parametrize("layout", [name for name, kind in INPUT_KINDS.items() if kind.layout != "contiguous"])
def test_layouts_go_through(layout):
    inputs = make_inputs(replace(of("gated-norm-first+residual", LAYER), inputs=layout), 3)
    checks = check(inputs, prepare(inputs, lambda given: lambda: gradients(given))())
    assert {each.error_class for each in checks.values()} == {"exact"}


def with_torch(prepare_plain=lambda inputs: lambda: gradients(inputs), **more):
    return WithTorch.completing(implementation("mine", prepare_plain, **more))


@pytest.mark.parametrize("text", COMBINED)
def test_a_plain_implementation_passes_every_variant_and_is_timed(text, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    row = Session(with_torch(), case=of(text)).run().row("mine + torch")
    assert (row.status, row.reason) == ("ok", None)
    assert row.timing.samples_us
    assert sentence(row.notes[-1]).startswith(("torch's elementwise operators do ", "computes the gradients"))


def test_what_it_says_of_a_case():
    refusing = {"unsupported": lambda case: None if case.bias else "only with a bias"}
    beside = with_torch(handles={"residual"}, **refusing)
    assert beside.name == "mine + torch"
    assert beside.unsupported(RMS) == "nothing is left to torch: mine has all of this case"
    assert beside.unsupported(of("residual")) == "nothing is left to torch: mine has all of this case"
    assert beside.unsupported(of("gated")) == "only with a bias"
    assert beside.unsupported(of("gated", LAYER)) is None
    assert beside.on_request
    assert WithTorch.completing(implementation("mine", handles=set(FEATURES))) is None


BESIDE = "mine + torch"
NEEDS_WEIGHT = {"unsupported": lambda case: None if case.weight and not case.zero_centred else "a weight as it is"}


@pytest.mark.parametrize("text", ["plain", "residual", "parallel", "gated-norm-first"])
@pytest.mark.parametrize(
    "case", [replace(RMS, weight=False), replace(LAYER, weight=False, bias=False), replace(LAYER, zero_centred=True)]
)
def test_a_weight_that_it_cannot_have_is_made_for_it(text, case, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    case = of(text, case)
    row = Session(with_torch(honest, handles={"residual", "parallel"}, **NEEDS_WEIGHT), case=case).run().row(BESIDE)
    assert (row.status, row.reason) == ("ok", None)
    expected = "is handed 1 + weight as its weight (untimed)" if case.zero_centred else "is handed a weight of ones"
    assert any(expected in sentence(note) for note in row.notes)


def test_one_plus_a_weight_is_rounded_only_where_fp32_is_refused():
    case = NormCase("rms", 24, 16, zero_centred=True)
    assert with_torch(**NEEDS_WEIGHT).notes(case) == ["is handed 1 + weight as its weight (untimed)"]

    def of_one_dtype(case):
        return NEEDS_WEIGHT["unsupported"](case) or (None if case.weight_dtype == case.dtype else "one dtype")

    rounded = ["is handed 1 + weight as its weight, rounded to bf16 (untimed)"]
    assert with_torch(unsupported=of_one_dtype).notes(case) == rounded


def test_a_variant_that_it_refuses_here_is_left_to_torch():
    """It declares the variant, and says no to it on this GPU, or to it without a weight."""

    def on_another_gpu(case):
        return "not on this GPU" if "residual" in case.features else None

    beside = with_torch(handles={"residual"}, unsupported=on_another_gpu)
    assert beside.unsupported(of("residual")) is None
    assert beside.notes(of("residual")) == ["torch's elementwise operators do residual"]

    def with_a_weight(case):
        return "a residual needs a weight" if case.features and not case.weight else None

    beside = with_torch(handles={"residual"}, unsupported=with_a_weight)
    assert beside.unsupported(of("residual")) == "nothing is left to torch: mine has all of this case"
    assert beside.notes(replace(of("residual"), weight=False)) == [
        "is handed a weight of ones, whose gradient is dropped"
    ]
