from dataclasses import replace

import pytest

from harness.cases import NormCase
from reports.labels import case_labels
from reports.markdown_writer import write_section as write
from reports.parts.matrix import cell, section
from tests.results_factory import CASE, outcomes, results, row, verification

SMALL = NormCase("rms", 512, 1024)


def render(found):
    return write(section(found))


def test_labels_say_only_what_tells_cases_apart():
    nan, strided = (replace(SMALL, inputs=inputs) for inputs in ("nan-x", "strided-x"))
    other = replace(nan, rows=3)
    fp32 = replace(strided, weight_dtype="fp32", eps=1e-6)
    assert case_labels([strided, nan, other, SMALL, fp32]) == {
        SMALL: "normal, 512 x 1024",
        nan: "nan-x, 512 x 1024",
        other: "nan-x, 3 x 1024",
        strided: "strided-x",
        fp32: "strided-x, bf16-wfp32-eps1e-06",
    }


@pytest.mark.parametrize(
    ("status", "error_class", "expected"),
    [
        ("ok", "exact", "right"),
        ("ok", "two", "right (+2)"),
        ("nondeterministic", "one extra rounding", "nondet. (+1)"),
        ("wrong", "wrong", "wrong"),
        ("unsupported", None, "refused"),
        ("crashed", None, "crashed"),
        ("timeout", None, "timeout"),
        ("oom", None, "oom"),
    ],
)
def test_each_outcome_has_its_cell(status, error_class, expected):
    check = verification(error_class=error_class) if error_class else None
    (found,) = outcomes([results(row("quack", status=status, verification=check), timed=False)])
    assert cell(found).text == expected
    assert cell(found).status == status


def test_a_kind_names_who_is_wrong_on_it_and_nobody_else():
    inputs = replace(CASE, inputs="correlated")
    rows = [row("quack", case=inputs, status="wrong"), row("liger", case=inputs, status="crashed"), row("apex")]
    text = render(outcomes([results(*rows, timed=False)]))[-1]
    assert [line.split("|")[3].strip() for line in text.splitlines()[2:]] == ["-", "quack"]


def test_who_refuses_all_cases_of_a_table_is_named_and_has_no_column():
    """One that refuses some of them keeps its column."""
    nan, strided = (replace(SMALL, inputs=inputs) for inputs in ("nan-x", "strided-x"))
    rows = [row(impl, case=case, status="unsupported") for impl in ("apex", "cudnn") for case in (nan, strided)]
    rows += [row("quack", case=nan), row("quack", case=strided, status="unsupported")]
    refused, only = render(outcomes([results(*rows, timed=False)]))[5:7]
    assert refused == "Refused by: apex, cudnn."
    assert cells_of(only) == [["inputs", "quack"], ["nan-x", "right"], ["strided-x", "refused"]]
    rows += [row(impl, case=SMALL) for impl in ("apex", "cudnn", "quack")]
    assert "Refused by" not in "".join(render(outcomes([results(*rows, timed=False)])))


def cells_of(text):
    """The cells of a table, row by row with the headings first."""
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines())
    return [head, *rows]
