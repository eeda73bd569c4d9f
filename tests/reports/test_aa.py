import pytest

import reports
from harness.analysis.comparison import compare
from reports.parts.studies import ASK_AA as ASK
from reports.parts.studies import self_comparisons
from tests.results_factory import CASE, helpers, mixed, results, row, twin

PAIRS = (row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 46.0))


def render(file):
    return reports.render(file, "aa")


def only_cell(*rows):
    (found,) = [cell for cell in self_comparisons(compare(results(*PAIRS, *rows))) if not cell.makes_band]
    return found


def test_what_is_itself_is_not_called_different():
    cell = only_cell(twin("quack", 50.0))
    assert (cell.case, cell.impl, cell.claim) == (CASE.key, "quack", False)
    assert cell.median_us == pytest.approx(54.9, rel=0.01)


@pytest.mark.parametrize("off", [0.03, -0.03])
def test_planted_difference_beyond_band_is_listed(off):
    rows = [twin("quack", 50.0, off=off)]
    assert only_cell(*rows).claim
    text = render(results(*PAIRS, *rows))
    assert "which must be none: 1 of 1 (100.0 %)" in text
    assert "## Called different from themselves" in text


def test_the_baselines_own_cells_make_the_band():
    found = self_comparisons(compare(results(*PAIRS, twin("quack", 50.0))))
    assert [(cell.impl, cell.makes_band, cell.claim) for cell in found] == [
        ("torch-eager", True, False),
        ("quack", False, False),
    ]


def test_a_file_without_twins_says_how_to_get_them():
    only = [each for each in mixed().rows if each.role != "again"]
    assert render(results(*only)) == ASK
