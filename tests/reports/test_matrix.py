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


def test_usual_inputs_come_first():
    cases = [replace(SMALL, inputs=inputs) for inputs in ("strided-x", "correlated")]
    assert list(case_labels([*cases, SMALL])) == [SMALL, cases[1], cases[0]]


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


def test_what_is_missing_everywhere_has_no_column():
    rows = [row("quack"), row("apex", status="missing", reason="not installed: apex")]
    assert "apex" not in "".join(render(outcomes([results(*rows, timed=False)])))


def test_cases_tried_alike_share_a_table_without_empty_cells():
    """In the order of their first rows; what is missing on a case was not tried on it."""
    normal, nan, strided, last = (replace(SMALL, inputs=inputs) for inputs in ("normal", "nan-x", "strided-x", "3-d"))
    rows = [row(impl, case=case) for case in (normal, nan, last) for impl in ("quack", "liger")]
    rows += [row("quack", case=strided), row("liger", case=strided, status="missing", reason="not installed: liger")]
    _, _, _, dtypes, both, first, alone, second, *_ = render(outcomes([results(*rows, timed=False)]))
    assert dtypes == "Dtypes are bf16 where nothing else is said."
    assert (both, alone) == ("2 implementations on 3 cases.", "quack alone on 1 case.")
    assert cells_of(first) == [
        ["inputs", "quack", "liger"],
        ["normal, 512 x 1024", "right", "right"],
        ["nan-x", "right", "right"],
        ["3-d", "right", "right"],
    ]
    assert cells_of(second) == [["inputs", "quack"], ["strided-x", "right"]]


def test_one_table_needs_no_word_on_who_was_tried():
    rows = [
        row(impl, case=replace(SMALL, inputs=inputs)) for impl in ("quack", "liger") for inputs in ("normal", "3-d")
    ]
    assert "implementation" not in "".join(render(outcomes([results(*rows, timed=False)]))[2:])


def test_who_refuses_all_cases_of_a_table_is_named_and_has_no_column():
    """One that refuses some of them keeps its column."""
    nan, strided = (replace(SMALL, inputs=inputs) for inputs in ("nan-x", "strided-x"))
    rows = [row(impl, case=case, status="unsupported") for impl in ("apex", "cudnn") for case in (nan, strided)]
    rows += [row("quack", case=nan), row("quack", case=strided, status="unsupported")]
    refused, only = render(outcomes([results(*rows, timed=False)]))[4:6]
    assert refused == "Refused by: apex, cudnn."
    assert cells_of(only) == [["inputs", "quack"], ["nan-x", "right"], ["strided-x", "refused"]]
    rows += [row(impl, case=SMALL) for impl in ("apex", "cudnn", "quack")]
    assert "Refused by" not in "".join(render(outcomes([results(*rows, timed=False)])))


def test_refusing_all_cases_of_one_table_says_nothing_of_another():
    nan = replace(SMALL, inputs="nan-x")
    rows = [row("apex", case=SMALL), row("apex", case=nan, status="unsupported"), row("quack", case=nan)]
    *_, first_who, first, second_who, refused, second, _, _ = render(outcomes([results(*rows, timed=False)]))
    assert (first_who, second_who, refused) == (
        "apex alone on 1 case.",
        "2 implementations on 1 case.",
        "Refused by: apex.",
    )
    assert (cells_of(first)[0], cells_of(second)[0]) == (["inputs", "apex"], ["inputs", "quack"])


def test_what_labels_leave_out_is_what_is_said_above_them():
    """Of as many cases each, whichever more implementations ran."""
    wide, usual = replace(SMALL, weight_dtype="fp32", inputs="nan-x"), SMALL
    rows = [row("quack", case=usual), row("quack", case=wide), row("liger", case=wide)]
    for ordered in (rows, rows[::-1]):
        texts = render(outcomes([results(*ordered, timed=False)]))
        (dtypes,) = [text.split()[2] for text in texts if text.startswith("Dtypes are")]
        labels_left = [cells_of(text)[1][0] for text in texts if "| inputs" in text]
        assert [label for label in labels_left if "bf16" in label] == [
            {"bf16": "nan-x, bf16-wfp32", "bf16-wfp32": "normal, 512 x 1024, bf16"}[dtypes]
        ]


def cells_of(text):
    """The cells of a table, row by row with the headings first."""
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines())
    return [head, *rows]
