"""Every planted fault is caught with the right status and a reason that names it, and its honest twin passes."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from harness.cases.catalogue import SHAPES
from harness.cases.input_kinds import INPUT_KINDS
from harness.records.reasons import Reason
from harness.records.settings import Settings
from harness.verify.repetition import Repetition
from harness.worker.messages import Try
from harness.worker.trial import Trial
from tests.mutants.faults import RMS, RSTD, products
from tests.mutants.maths import gradients, implementation, tried
from tests.mutants.variants import FAULTS
from tests.wording import judged, worded

SETTINGS = Settings(timed=False, seeds=3, repeats=6, cells=1000)


@pytest.fixture(autouse=True)
def nothing_is_kept_from_earlier():
    RSTD.clear()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught_by_name(name):
    fault = FAULTS[name]
    row = tried(fault, True, SETTINGS)
    assert row.status == fault.status
    assert re.search(fault.reason, worded(row.reason) or "; ".join(worded(row.notes)))


@pytest.mark.parametrize("name", FAULTS)
def test_its_honest_twin_passes(name):
    row = tried(FAULTS[name], False, SETTINGS)
    assert judged(row) == ("ok", None)
    assert {check.error_class for check in row.verification.tensors.values()} == {"exact"}


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.hidden])
def test_usual_inputs_hide_what_the_catalogue_finds(name):
    fault = FAULTS[name]
    usual = replace(fault.case, inputs="normal", rows=64, cols=128)
    row = tried(fault, True, SETTINGS, usual)
    assert judged(row) == ("ok", None)


@pytest.mark.parametrize(("planted", "status"), [(False, "timeout"), (True, "wrong")])
def test_waiting_for_another_kernel_is_a_timeout(monkeypatch, planted, status):
    def waits(repetition, repeats):
        repetition.waits = Reason("waits_for_held", {"seconds": 0.1, "programs": 8, "of": 132})

    monkeypatch.setattr(Repetition, "under_conditions", waits)
    fault = next(each for each in FAULTS.values() if each.status == "wrong" and each.case == RMS)
    row = tried(fault, planted, SETTINGS)
    assert row.status == status
    assert (row.reason is not None and row.reason.code == "waits_for_held") is not planted


LAYOUTS = [name for name, fault in FAULTS.items() if name.startswith("strides taken for granted")]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_declared_layout_is_refused(name):
    row = tried(FAULTS[name], True, SETTINGS, contiguous_only=True)
    assert judged(row) == ("unsupported", "takes contiguous inputs alone")


def test_what_is_declared_hides_no_other_fault():
    assert len(LAYOUTS) == sum(not kind.contiguous for kind in INPUT_KINDS.values()) == 8
    for name in ("addresses rounded down (misaligned)", "second dimension taken for columns (3-d)", "x changed"):
        assert tried(FAULTS[name], True, SETTINGS, contiguous_only=True).status == "wrong"


def test_every_kind_finds_a_hidden_fault():
    assert {fault.case.inputs for fault in FAULTS.values() if fault.hidden} == set(INPUT_KINDS)


def test_every_edge_shape_finds_a_hidden_fault():
    hidden = [fault.case for fault in FAULTS.values() if fault.hidden and fault.case.inputs == "normal"]
    for_rows = {case.rows for case in hidden}
    for_cols = {case.cols for case in hidden}
    usual = {128, 512, 64, 32, 16, 2}  # for the slope, or with an edge of the other dimension
    assert {rows for rows, _ in SHAPES["cpu"]} <= for_rows | usual
    assert {cols for _, cols in SHAPES["cpu"]} <= for_cols | usual


def test_faults_have_every_outcome():
    assert len(FAULTS) >= 24
    outcomes = {"wrong", "nondeterministic", "crashed", "ok"}  # ok: in a class of its own
    assert set(Counter(fault.status for fault in FAULTS.values())) == outcomes


def in_bf16_parts(inputs):
    """Partial sums that are kept in bf16, as some kernels do by design."""
    parts = products(inputs).reshape(32, -1, inputs.case.cols).sum(1).bfloat16()
    return replace(gradients(inputs), dweight=parts.double().sum(0).bfloat16())


def by_rounded_products(inputs):
    """Xhat and its product with dy rounded to bf16 before they are summed, as Liger's llama casting does."""
    xhat = (products(inputs) / inputs.dy.double()).bfloat16().double()
    return replace(gradients(inputs), dweight=(xhat * inputs.dy.double()).bfloat16().double().sum(0).bfloat16())


@pytest.mark.parametrize(
    ("gradients_of", "named"), [(in_bf16_parts, "one extra rounding"), (by_rounded_products, "two")]
)
def test_casting_rule_gets_its_class(gradients_of, named):
    case = replace(RMS, rows=256, cols=4096)  # columns enough to tell 1.4 from 1.7
    adapter = implementation("casts", lambda inputs: lambda: gradients_of(inputs))
    rows = []
    Trial(Try(case, ("casts",), "group", SETTINGS), {"casts": adapter}, lambda impl, stage: None, rows.append).run()
    assert judged(rows[0]) == ("ok", None)
    classes = {name: check.error_class for name, check in rows[0].verification.tensors.items()}
    assert classes == {"dx": "exact", "dweight": named}


def test_zero_for_normal_numbers_is_wrong():
    def dx_of_nothing(inputs):
        grads = gradients(inputs)
        return replace(grads, dx=grads.dx * 0)

    adapter = implementation("forgets", lambda inputs: lambda: dx_of_nothing(inputs))
    rows = []
    case = replace(RMS, inputs="subnormal-x")
    Trial(Try(case, ("forgets",), "group", SETTINGS), {"forgets": adapter}, lambda impl, stage: None, rows.append).run()
    assert (rows[0].status, rows[0].verification.tensors["dx"].error_class) == ("wrong", "wrong")
