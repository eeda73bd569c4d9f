from dataclasses import replace

from harness.analysis.comparison import compare
from harness.cases import NormCase
from reports.size_groups import groups
from tests.results_factory import results, row


def grouped(*cases):
    return groups(compare(results(*(row("quack", 20.0, case) for case in cases))))


def test_strips_are_elements_or_rows_largest_first():
    equal = [NormCase("rms", size // cols, cols) for size in (1 << 23, 1 << 24) for cols in (1024, 2048)]
    assert list(grouped(*equal)[0].strips) == ["16 Mi elements", "8 Mi elements"]
    models = [NormCase("rms", rows, cols) for rows in (4096, 16384) for cols in (2880, 2048, 7168)]
    (group,) = grouped(*models)
    assert list(group.strips) == ["16384 rows", "4096 rows"]
    assert [case.case.cols for case in group.strips["16384 rows"]] == [2048, 2880, 7168] == group.cols


def test_other_dtypes_are_groups_of_their_own_that_are_named():
    usual = [NormCase("rms", rows, 1024) for rows in (64, 128)]
    mixed = replace(usual[0], weight_dtype="fp32")
    assert [group.key for group in grouped(*usual, mixed)] == ["rms", "rms-bf16-wfp32"]


def test_unusual_inputs_and_what_nobody_ranks_in_are_left_out():
    case = NormCase("rms", 64, 1024)
    assert grouped(replace(case, inputs="strided-x")) == []
    assert groups(compare(results(row("quack", case=case, status="wrong", reason="off")))) == []
