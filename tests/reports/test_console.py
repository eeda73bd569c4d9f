from dataclasses import replace

import pytest

from harness.analysis.comparison import compare
from harness.cases import NormCase
from reports.formats.console import MOST_CASES_IN_FULL, MOST_FAILURES, render
from reports.table import Heading, left, table
from reports.terminal import WIDTH, fitted
from tests.results_factory import CASE, careful, many, mixed, results, row, thorough, verification, verified_only

FILES = {"mixed": mixed, "many": many, "verified_only": verified_only, "thorough": thorough, "careful": careful}


@pytest.mark.parametrize("name", list(FILES))
def test_golden_at_120_columns(golden, name):
    text = render(compare(FILES[name]()))
    assert max(map(len, text.splitlines())) <= 120
    golden(f"{name}.txt", text)


@pytest.mark.parametrize("name", list(FILES))
def test_80_columns_drop_columns_and_break_no_name(golden, name):
    text = render(compare(FILES[name]()), width=80)
    assert max(map(len, text.splitlines())) <= 80
    broken = set(text.split()) - set(render(compare(FILES[name]()), width=300).split())
    assert all(set(word) == {"─"} for word in broken)
    golden(f"{name}.80.txt", text)


def test_columns_go_in_a_stated_order_until_the_table_fits():
    headings = [*left("impl"), Heading("us", drop=1), Heading("GB/s", drop=3), Heading("% add", drop=2)]
    wide = table(headings, [["torch-eager", "1234.5", "4000", "99.9"]])
    assert [fitted(wide, width).heads for width in (32, 31, 25, 18)] == [
        ("impl", "us", "GB/s", "% add"),
        ("impl", "us", "% add"),
        ("impl", "us"),
        ("impl",),
    ]
    assert fitted(wide, 5).heads == ("impl",)


def test_many_cases_take_a_line_each():
    comparison = compare(many(MOST_CASES_IN_FULL + 1))
    text = render(comparison)
    assert all(text.count(case.case.key.removeprefix(f"{case.case.norm}-")) == 1 for case in comparison.cases)


def test_markup_in_a_reason_is_text():
    rows = [row("torch-eager", 100.0), row("quack", status="crashed", reason="list[int] [/red] [bold]")]
    assert "list[int] [/red] [bold]" in render(compare(results(*rows)))


def test_what_torch_helped_with_is_not_told_as_not_run():
    lacks = {"status": "unsupported", "reason": "does not handle residual"}
    rows = [row("torch-eager", 100.0), row("liger", None, **lacks), row("liger + torch", 60.0)]
    rows += [row("quack", None, **lacks), row("quack + torch", None, status="unsupported", reason="no wide rows")]
    (line,) = [line for line in render(compare(results(*rows))).splitlines() if line.startswith("Not run: ")]
    assert line == "Not run: quack + torch (unsupported: no wide rows; 1 case)."


def test_failures_do_not_scroll_results_away():
    cases = [NormCase("rms", rows, 64) for rows in range(1, 41)]
    rows = [row("quack", case=case, status="wrong", reason="dx is off") for case in cases]
    rows += [row("liger", case=cases[0], status="crashed", reason="boom")]
    lines = render(compare(results(*rows, timed=False))).splitlines()
    assert sum(line.startswith("quack: rms-") for line in lines) == MOST_FAILURES
    assert "quack: … 28 more cases in --format verification" in lines
    assert "liger: rms-1x64-bf16: crashed, boom" in lines


def in_layouts(*layouts, inputs=(), right=(), **normal):
    """A verification of `mine` that is wrong in these layouts and on these other inputs, and right on others."""
    wrong = [replace(CASE, inputs=name) for name in (*inputs, *layouts)]
    rows = [row("mine", case=CASE, **normal), *(row("mine", case=replace(CASE, inputs=name)) for name in right)]
    rows += [row("mine", case=case, status="wrong", reason="dx is off by rho inf") for case in wrong]
    return render(compare(results(*rows, timed=False))).splitlines()


def test_layouts_that_are_wrong_alike_are_one_line():
    layouts = ("strided-x", "expanded-dy", "summed-dy", "transposed-dy")
    lines = in_layouts(*layouts, inputs=["misaligned"])
    folded = (
        f"mine: {CASE.key}, 4 layouts: wrong, where an input is not contiguous; "
        "an adapter may declare contiguous_only = True: dx is off by rho inf"
    )
    assert [line for line in lines if line.startswith("mine: ")] == [
        f"mine: {CASE.key}-misaligned: wrong, dx is off by rho inf",
        folded[: WIDTH - 1].rstrip() + "…",
    ]


@pytest.mark.parametrize(
    ("layouts", "right", "status"),
    [
        (["strided-x"], [], "ok"),
        (["strided-x", "summed-dy"], [], "wrong"),
        (["strided-x", "summed-dy"], ["expanded-dy"], "ok"),
    ],
)
def test_other_faults_are_not_the_layouts(layouts, right, status):
    lines = in_layouts(*layouts, right=right, status=status)
    assert not any("is not contiguous" in line for line in lines)
    assert sum("-strided-x: wrong, dx is off" in line for line in lines) == 1


def test_same_bits_are_of_the_most_run_case():
    """Differing bits of any case come first."""

    def bits(*checks):
        cases = [CASE, *(replace(CASE, rows=rows) for rows in (1, 2))]
        rows = [
            row("quack", case=case, status="nondeterministic" if check.differing else "ok", verification=check)
            for case, check in zip(cases, checks, strict=False)
        ]
        return render(compare(results(*rows, timed=False))).splitlines()[5].split("  ")[-1].strip()

    assert bits(verification(repeats=2), verification(repeats=300)) == "n=300"
    assert bits(verification(repeats=300), verification(repeats=20, differing_in=["dx"])) == "no, 2/20"
