"""The table of failures: what one implementation failed on in one way is one line."""

from harness.cases import NormCase
from harness.records.reasons import Reason
from reports.parts.reasons import section
from tests.results_factory import outcomes, results, row

CASES = [NormCase("rms", rows, 64) for rows in range(1, 7)]


def lines(*rows):
    """The lines of the table of failures."""
    failed, _ = section(outcomes([results(*rows, timed=False)])).parts
    assert failed.heads == ("impl", "status", "cases", "reason", "which")
    return [tuple(cell.text for cell in line) for line in failed.rows]


def wrong(*reasons, impl="quack", status="wrong"):
    """A row for each reason, on a case of its own."""
    return [row(impl, case=case, status=status, reason=reason) for case, reason in zip(CASES, reasons, strict=False)]


def off(**rhos):
    return Reason("off", parts=[Reason("tensor_off", {"tensor": name, "rho": rho}) for name, rho in rhos.items()])


def test_reasons_that_differ_in_numbers_alone_are_one_line_with_their_range():
    told = lines(*wrong(off(dx=11.0, dweight=307.0), off(dx=6.21, dweight=307.0)))
    assert told == [
        (
            "quack",
            "wrong",
            "2",
            "dx is off by rho 6.21 to 11, dweight is off by rho 307 (1 is one rounding)",
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
        *wrong(off(dx=3.0), off(dx=4.0), off(dx=5.0), off(dweight=6.0)),
        row("quack", case=CASES[1], status="wrong", reason=off(dx=4.5), process=1),
        row("quack", case=CASES[2], process=1),
        row("quack", case=CASES[3], status="wrong", reason=off(dx=2.0), process=1),
    ]
    assert [line[2:] for line in lines(*rows)] == [
        ("4", "dx is off by rho 2 to 5 (1 is one rounding)", "rms-1x64-bf16, rms-2x64-bf16, rms-3x64-bf16 and 1 more"),
        ("1", "dweight is off by rho 6 (1 is one rounding)", "rms-4x64-bf16"),
    ]
