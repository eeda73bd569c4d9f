import pytest

from reports.parts.studies import ASK_PROCESSES as ASK
from reports.parts.studies import agreements_of, process_bound
from reports.parts.studies import processes as render
from tests.results_factory import helpers, in_processes, mixed, results, row, thorough, timing

ROWS = (row("torch-eager", 100.0), row("quack", 50.0, shift=1), *helpers(100.0, 46.0))


def only_cell(*rows):
    (found,) = agreements_of(results(*rows))
    return found


def test_golden(golden):
    golden("thorough.processes.md", render(thorough()))


def test_processes_that_find_the_same_agree():
    cell = only_cell(*in_processes(*ROWS))
    assert (cell.impl, len(cell.ratios), cell.agrees(), cell.agrees(widened=True)) == ("quack", 3, True, True)
    page = render(results(*in_processes(*ROWS)))
    assert "of medians median 1.00 %, largest 1.00 %; of speedups median 0.00 %, largest 0.00 %" in page


def test_a_process_that_is_biased_disagrees_and_is_listed():
    biased = in_processes(*ROWS, bias={("quack", "impl", 1): 1.06})
    cell = only_cell(*biased)
    assert (cell.agrees(), cell.agrees(widened=True)) == (False, False)
    text = render(results(*biased))
    assert "Agree: 0 of 1 (0.0 %); widened: 0 of 1 (0.0 %)." in text
    assert "## Processes that do not agree" in text


@pytest.mark.parametrize("biased", [1.06, 0.96])  # beyond the others on either side
def test_the_band_of_the_process_itself_widens_its_interval(biased):
    quack, again = ("quack", "impl", 1), ("torch-eager", "again", 1)
    cell = only_cell(*in_processes(*ROWS, bias={quack: biased, again: 1.06}))
    assert (cell.agrees(), cell.agrees(widened=True)) == (False, True)
    assert cell.bands[1] > 0.04 > max(cell.bands[0], cell.bands[2])
    elsewhere = only_cell(*in_processes(*ROWS, bias={quack: biased, ("torch-eager", "again", 0): 1.02}))
    assert not elsewhere.agrees(widened=True)


def test_a_process_that_cannot_be_compared_is_left_out():
    unproven = row("quack", process=1, timed=timing(50.0, group="p1", proven=False), us=50.0)
    assert len(only_cell(*in_processes(*ROWS), unproven).ratios) == 2


def test_one_process_says_how_to_get_more():
    assert render(mixed()) == ASK


def test_bound_grows_with_one_process_that_is_off():
    biased = agreements_of(results(*in_processes(*ROWS, bias={("quack", "impl", 1): 1.05})))
    assert process_bound(agreements_of(results(*in_processes(*ROWS)))) < 1e-9
    assert process_bound(biased) > 0.03
