from dataclasses import replace

import pytest

from harness.cases import NormCase
from harness.cases.catalogue import SHAPES, not_tried, of_kinds, parse_inputs, studied
from harness.cases.input_kinds import INPUT_KINDS
from harness.errors import UsageError
from harness.records.cases_asked import asked_for, cases_on, dtype_on
from harness.records.run_records import ImplRecord
from harness.records.settings import Settings
from harness.run.plan import Job, cells, plan_verification

RMS = NormCase("rms", 8, 16, device="cpu")
LAYER = NormCase("layer", 8, 16, bias=True, device="cpu")


def test_input_kinds_are_read_by_name_and_pattern():
    assert parse_inputs("all") == list(INPUT_KINDS)
    assert parse_inputs(" Zero-Rows , mean-* ,normal") == ["normal", "mean-10", "mean-100", "mean-1000", "zero-rows"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("corelated", r"^--inputs corelated: no inputs are called so; did you mean correlated\?$"),
        ("", r"^--inputs \(empty\): no inputs are called so; choose among all, normal, correlated, "),
        ("normal,qqq", r"^--inputs qqq: "),
    ],
)
def test_inputs_that_nobody_knows(text, said):
    with pytest.raises(UsageError, match=said):
        parse_inputs(text)


def test_a_kind_suits_cases_that_have_what_it_changes():
    def kinds_of(case):
        return {each.inputs for each in of_kinds([case], list(INPUT_KINDS))}

    whole = replace(LAYER, features=("residual", "gated"))
    assert kinds_of(whole) == set(INPUT_KINDS)
    featured = {"large-residual", "large-gates"}
    assert kinds_of(LAYER) == set(INPUT_KINDS) - featured
    assert set(INPUT_KINDS) - kinds_of(RMS) == {"mean-10", "mean-100", "mean-1000", "large-bias"} | featured
    assert {"zero-weights", "tiny-weights"} <= set(INPUT_KINDS) - kinds_of(replace(RMS, weight=False))
    assert set(INPUT_KINDS) - kinds_of(replace(LAYER, bias=False)) == {"large-bias"} | featured
    strided = {name for name, kind in INPUT_KINDS.items() if not kind.contiguous and kind.only == "any"} | {"3-d"}
    heads = replace(whole, features=("residual", "gated", "qk"), heads=2, projection=48)
    assert kinds_of(whole) - kinds_of(heads) == strided


def unusual(case, usual):
    return case != replace(usual, rows=case.rows, cols=case.cols, inputs=case.inputs)


@pytest.mark.parametrize("device", SHAPES)
def test_the_first_shape_has_every_kind_of_inputs(device):
    cases = cases_on(device, Settings(timed=False))
    assert len(set(cases)) == len(cases)
    rows, cols = SHAPES[device][0]
    for norm, fewer in (("rms", 6), ("layer", 2)):
        dtype = dtype_on(device, Settings())
        usual = NormCase(norm, 1, 1, dtype, dtype, bias=norm == "layer", device=device)
        of_norm = [case for case in cases if case.norm == norm and not unusual(case, usual)]
        assert len([case for case in of_norm if (case.rows, case.cols) == (rows, cols)]) == len(INPUT_KINDS) - fewer
        others = [case for case in of_norm if (case.rows, case.cols) != (rows, cols)]
        assert {(case.rows, case.cols) for case in others} == set(SHAPES[device][1:])
        assert {case.inputs for case in others} == {"normal"}


def test_other_parameters_are_tried_where_none_was_typed():
    cases = cases_on("cuda", Settings(timed=False))
    assert {case.eps for case in cases if case.inputs == "small-x"} == {1e-5, 1e-12, 1e-6, 1e-3}
    assert not_tried(cases) == ["variants (--variant)", "x in fp16 or fp32 (--dtype)"]
    frozen = cases_on("cuda", Settings(timed=False, gradients="dx"))
    assert {case.features for case in frozen} == {("frozen",)}
    assert len(frozen) == len(cases)
    typed = cases_on("cuda", Settings(timed=False, eps=1e-6))
    assert {case.eps for case in typed} == {1e-6}
    assert "no weight (--no-weight)" in not_tried(typed)
    assert not any("eps" in what for what in not_tried(typed))
    assert not_tried(cases_on("cpu", Settings(timed=False, shapes="8x8", inputs="normal")))[-1] == (
        f"{len(INPUT_KINDS) - 3} kinds of inputs (--inputs)"
    )


def test_nothing_is_completed_by_torch_for_what_was_not_asked_for():
    asked, typed = Settings(timed=False), Settings(timed=False, weight=False)
    of_catalogue, without_weight = cases_on("cpu", asked), cases_on("cpu", typed)
    assert all(case.weight and not case.zero_centred for case in asked_for(of_catalogue, asked))
    assert asked_for(without_weight, typed) == without_weight


def test_what_does_not_fit_on_a_device_is_left_out():
    elements = {
        gib: max(case.rows * case.cols for case in cases_on("cuda", Settings(timed=False), gib << 30))
        for gib in (24, 80, 141)
    }
    assert elements[24] < 1 << 30 < 1 << 31 < elements[80] < 1 << 32 < elements[141]


def test_what_is_studied_is_the_usual_case_beside_others():
    cases = [RMS, replace(RMS, inputs="nan-x"), replace(RMS, rows=9), LAYER]
    assert studied(cases) == {RMS}


def test_studied_cases_are_verified_in_two_processes():
    impls = [ImplRecord(name=name, family=name, source="") for name in ("a", "b")]
    odd = replace(RMS, inputs="nan-x")
    jobs = plan_verification([RMS, odd, LAYER], impls)
    names = ("a", "b")
    assert jobs == [Job(RMS, names, 0, True), Job(odd, names), Job(LAYER, names), Job(RMS, names, 1)]
    assert cells(jobs) == 2 * (2 + 2 + 3 + 2)
