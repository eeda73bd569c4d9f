import re

import pytest

from reports.data.comparison import compare
from reports.formats.grid import render
from tests.results_factory import helpers, mixed, results, row, thorough, verified_only


@pytest.mark.parametrize("measured", [mixed, thorough])
def test_the_page(golden, measured):
    golden(f"{measured.__name__}.grid.md", render(compare(measured())))


def test_without_times_there_is_no_table_of_times():
    head = re.compile(r"\|\s+add us \|")
    assert head.search(render(compare(mixed())))
    assert not head.search(render(compare(verified_only())))


def test_fastest_is_bold_and_failed_has_no_time():
    rows = [row("torch-eager", 100.0), row("quack", 50.0), row("liger", 1.2345, status="wrong", reason="off")]
    text = render(compare(results(*rows, *helpers(100.0, 46.0))))
    assert "**54.9**" in text
    assert "**109.9**" not in text
    assert "1.23" not in text


@pytest.mark.parametrize("status", ["wrong", "crashed"])
def test_who_ranks_elsewhere_shows_why_not_here(status):
    from harness.cases import NormCase

    other = NormCase("rms", 1024, 1024)
    rows = [row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 46.0)]
    rows += [row("torch-eager", 100.0, other), row("quack", 1.0, other, status=status, reason="off")]
    assert f" {status} |" in render(compare(results(*rows, *helpers(100.0, 46.0, other))))
