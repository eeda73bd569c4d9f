import reports
from reports.parts.studies import ASK_PROCESSES as ASK
from tests.results_factory import helpers, in_processes, mixed, results, row

ROWS = (row("torch-eager", 100.0), row("quack", 50.0, shift=1), *helpers(100.0, 46.0))


def render(file):
    return reports.render(file, "processes")


def test_processes_that_find_the_same_are_off_by_nothing():
    page = render(results(*in_processes(*ROWS)))
    assert "1 comparison in 3 processes." in page
    assert "of medians median 1.00 %, largest 1.00 %; of speedups median 0.00 %, largest 0.00 %" in page
    assert "is off by at most 0.00 % in 95 % of all" in page


def test_a_process_that_is_biased_is_off():
    page = render(results(*in_processes(*ROWS, bias={("quack", "impl", 1): 1.01 * 1.05})))
    assert "of speedups median 2.82 %" in page
    assert "is off by at most 3.78 % in 95 % of all" in page


def test_one_process_says_how_to_get_more():
    assert render(mixed()) == ASK
