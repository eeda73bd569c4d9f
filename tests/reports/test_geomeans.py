"""Geometric means of both norms beside each other."""

from dataclasses import replace

from harness.analysis.comparison import compare
from reports.parts.geomeans import norms_side_by_side
from tests.results_factory import CASE, helpers, mixed, results, row


def texts(found):
    """The headings and the texts of the cells; what holds a figure is sorted by it."""
    shown = norms_side_by_side(compare(found))
    assert shown.kinds == ("text", *("number",) * (len(shown.heads) - 1))
    return shown.heads, [tuple(cell.text for cell in row) for row in shown.rows]


def test_an_implementation_is_one_row():
    """The best of either norm on top; one that ranks in one norm alone, or has other bits, says so."""
    heads, rows = texts(mixed())
    assert heads == ("implementation", "RMSNorm speedup", "LayerNorm speedup", "right", "same bits", "fastest in")
    assert rows == [
        ("quack", "3.33 (3.33 to 3.33)", "-", "1 of 2", "1 of 1", "0, tied in 1"),
        ("triton-inhouse", "3.32 (3.32 to 3.32)", "2.00 (2.00 to 2.00)", "2 of 2", "2 of 2", "1, tied in 1"),
        ("liger", "2.40 (2.40 to 2.40)", "-", "2 of 2", "1 of 2", "0"),
        ("compiled", "-", "1.60 (1.60 to 1.60)", "2 of 2", "2 of 2", "0"),
        ("torch-eager", "1.00 (1.00 to 1.00)", "1.00 (1.00 to 1.00)", "2 of 2", "2 of 2", "0"),
    ]


def test_over_how_many_cases_a_mean_is():
    cases = [CASE, replace(CASE, rows=4096)]
    rows = [each for case in cases for each in (row("torch-eager", 40.0, case), *helpers(40.0, 10.0, case))]
    _, rows = texts(results(*rows, row("quack", 20.0, CASE), row("quack", case=cases[1], status="wrong", reason="off")))
    assert rows[0] == ("quack", "2.00 (2.00 to 2.00) in 1 of 2", "1 of 2", "1 of 1", "1")
