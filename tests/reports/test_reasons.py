"""The table of failures: what one implementation failed on in one way is one line."""

from dataclasses import replace

import pytest

from harness.cases import NormCase
from reports.parts.reasons import LONGEST_CRASH, NOT_CONTIGUOUS, section
from tests.results_factory import CASE, outcomes, results, row

CASES = [NormCase("rms", rows, 64) for rows in range(1, 7)]


def lines(*rows):
    """The lines of the table of failures."""
    failed, _ = section(outcomes([results(*rows, timed=False)])).parts
    assert failed.heads == ("impl", "status", "cases", "reason", "which")
    return [tuple(cell.text for cell in line) for line in failed.rows]


def wrong(*reasons, impl="quack", status="wrong"):
    """A row for each reason, on a case of its own."""
    return [row(impl, case=case, status=status, reason=reason) for case, reason in zip(CASES, reasons, strict=False)]


def test_reasons_that_differ_in_numbers_alone_are_one_line_with_their_range():
    told = lines(
        *wrong("dx is off by rho 11, dweight is off by rho 307", "dx is off by rho 6.21, dweight is off by rho 307")
    )
    assert told == [
        (
            "quack",
            "wrong",
            "2",
            "dx is off by rho 6.21 to 11, dweight is off by rho 307",
            "rms-1x64-bf16, rms-2x64-bf16",
        )
    ]


def test_other_reasons_statuses_and_implementations_have_lines_of_their_own():
    """Those of one implementation stand together."""
    rows = [
        *wrong("dx is off by rho 3", "dweight is off by rho 3"),
        *wrong("dx is off by rho 4", impl="liger"),
        row("quack", case=CASES[2], status="crashed", reason="dx is off by rho 3"),
    ]
    assert [line[:4] for line in lines(*rows)] == [
        ("quack", "wrong", "1", "dx is off by rho 3"),
        ("quack", "wrong", "1", "dweight is off by rho 3"),
        ("quack", "crashed", "1", "dx is off by rho 3"),
        ("liger", "wrong", "1", "dx is off by rho 4"),
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("rho inf (1 is", "rho 9.5 (1 is", ["rho 9.5 to inf (1 is"]),
        ("rho 2.17e+19, x", "rho 301, x", ["rho 301 to 2.17e+19, x"]),
        ("2 of 300 runs differ", "11 of 300 runs differ", ["2 to 11 of 300 runs differ"]),
        ("no answer within 300.", "no answer within 60.", ["no answer within 60 to 300."]),
        ("dweight is off", "dweight1 is off", ["dweight is off", "dweight1 is off"]),
        ("1024FloatFloat", "512FloatFloat", ["1024FloatFloat", "512FloatFloat"]),
        ("torch 2.11.0 is", "torch 2.12.0 is", ["torch 2.11.0 is", "torch 2.12.0 is"]),
        (None, None, ["-"]),
    ],
)
def test_numbers_are_told_from_names(one, other, expected):
    assert [reason for _, _, _, reason, _ in lines(*wrong(one, other))] == expected


def test_the_first_cases_are_named_and_all_are_there_on_demand():
    reasons = ["dx is off"] * len(CASES)
    assert lines(*wrong(*reasons))[0][2:] == (
        "6",
        "dx is off",
        "rms-1x64-bf16, rms-2x64-bf16, rms-3x64-bf16 and 3 more",
    )
    assert lines(*wrong(*reasons[:3]))[0][-1] == "rms-1x64-bf16, rms-2x64-bf16, rms-3x64-bf16"
    failed, _ = section(outcomes([results(*wrong(*reasons), timed=False)])).parts
    assert failed.rows[0][-1].why == tuple(case.key for case in CASES)


def test_processes_are_told_apart_by_their_reasons_alone():
    """A case that failed alike in several is one case; one that failed in two ways stands with both."""
    rows = [
        *wrong("dx is off by rho 3", "dx is off by rho 4", "dx is off by rho 5", "dweight is off by rho 6"),
        row("quack", case=CASES[1], status="wrong", reason="dx is off by rho 4.5", process=1),
        row("quack", case=CASES[2], process=1),
        row("quack", case=CASES[3], status="wrong", reason="dx is off by rho 2", process=1),
    ]
    assert [line[2:] for line in lines(*rows)] == [
        ("4", "dx is off by rho 2 to 5", "rms-1x64-bf16, rms-2x64-bf16, rms-3x64-bf16 and 1 more"),
        ("1", "dweight is off by rho 6", "rms-4x64-bf16"),
    ]


def test_only_what_crashed_is_cut_short():
    long = "RuntimeError: no such size. " + "frame " * 40
    (crashed,), (failed,) = lines(*wrong(long, status="crashed")), lines(*wrong(long))
    assert len(crashed[3]) <= LONGEST_CRASH
    assert crashed[3].startswith("RuntimeError: no such size. frame")
    assert failed[3] == long.strip()


def test_crashes_that_differ_behind_the_cut_are_one_line():
    told = lines(*wrong(*("RuntimeError: no such size. " + "frame " * 30 + name for name in "ab"), status="crashed"))
    assert [line[2] for line in told] == ["2"]


def test_layouts_that_are_one_line_are_as_many_cases():
    layouts = [replace(CASE, inputs=inputs) for inputs in ("strided-x", "expanded-dy", "summed-dy", "transposed-dy")]
    rows = [row("quack", case=case, status="wrong", reason="dx is off") for case in layouts]
    assert [line[2:] for line in lines(row("quack"), *rows)] == [
        ("4", f"{NOT_CONTIGUOUS}: dx is off", f"{CASE.key}, 4 layouts")
    ]
    several = [replace(case, inputs=inputs) for case in CASES[:4] for inputs in ("strided-x", "summed-dy")]
    rows = [row("quack", case=case, status="wrong", reason="dx is off") for case in several]
    ((*_, cases, _, which),) = lines(*(row("quack", case=case) for case in CASES[:4]), *rows)
    assert (cases, which[-10:]) == ("8", "and 2 more")
