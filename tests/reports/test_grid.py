import pytest

from harness.analysis.comparison import compare
from harness.cases import NormCase
from reports.formats.grid import render
from tests.results_factory import helpers, mixed, results, row, selftest, thorough

OTHER = NormCase("rms", 1024, 1024)
RESIDUAL = NormCase("rms", 8192, 4096, features=("residual",))


@pytest.mark.parametrize("measured", [mixed, thorough])
def test_the_page(golden, measured):
    golden(f"{measured.__name__}.grid.md", render(compare(measured())))


def test_fastest_is_bold_and_failed_has_no_time():
    rows = [row("torch-eager", 100.0), row("quack", 50.0), row("liger", 1.2345, status="wrong", reason="off")]
    text = render(compare(results(*rows, *helpers(100.0, 46.0))))
    assert "**54.9**" in text
    assert "**109.9**" not in text
    assert "1.23" not in text


@pytest.mark.parametrize("status", ["wrong", "crashed"])
def test_who_ranks_elsewhere_shows_why_not_here(status):
    rows = [row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 46.0)]
    rows += [row("torch-eager", 100.0, OTHER), row("quack", 1.0, OTHER, status=status, reason="off")]
    assert f" {status} |" in render(compare(results(*rows, *helpers(100.0, 46.0, OTHER))))


def columns(text):
    """The implementations of the first table, from left to right."""
    head = next(line for line in text.splitlines() if line.startswith("| case"))
    return [name.strip() for name in head.strip("| ").split("|")][3:]


def test_columns_stand_by_how_near_to_the_fastest_they_come():
    """Over what is slow in a case alone, every speedup is large: liger has such a case, and is no faster for it."""
    usual = [row("torch-eager", 100.0), row("triton-inhouse", 50.0), row("quack", 55.0), *helpers(100.0, 46.0)]
    slow = [row("torch-eager", 900.0, OTHER), row("triton-inhouse", 50.0, OTHER), row("liger", 90.0, OTHER)]
    text = render(compare(results(*usual, *slow, *helpers(900.0, 46.0, OTHER), selftests=[selftest()])))
    assert columns(text) == ["triton-inhouse", "quack", "liger", "torch-eager"]
    assert "Columns: the best implementation first, by the geometric mean of its time over that of the fastest" in text


def with_residual(*rows):
    """A page of a plain case and one with a residual, which has these rows besides the baseline."""
    plain = [row("torch-eager", 100.0), row("quack", 60.0), row("liger", 50.0), *helpers(100.0, 46.0)]
    return render(compare(results(*plain, row("torch-eager", 100.0, RESIDUAL), *rows, *helpers(100.0, 46.0, RESIDUAL))))


def test_a_variant_by_way_of_torch_stands_in_the_column_of_its_implementation():
    refused = row("quack", case=RESIDUAL, status="unsupported", reason="does not handle residual")
    text = with_residual(refused, row("quack + torch", 90.0, RESIDUAL), row("liger", 55.0, RESIDUAL))
    assert [name for name in columns(text) if "quack" in name] == ["quack"]
    assert "98.9 + |" in text
    assert "+: the implementation lacks the variant; its plain backward, and torch's operators around it." in text
    assert "**98.9 +**" in with_residual(refused, row("quack + torch", 90.0, RESIDUAL))
    wrong = row("quack + torch", case=RESIDUAL, status="wrong", reason="dx is off")
    assert " wrong + |" in with_residual(refused, wrong)


def test_what_is_measured_by_way_of_torch_alone_has_a_column_of_its_own():
    text = with_residual(row("oink + torch", 90.0, RESIDUAL))
    assert "oink + torch" in columns(text)
    assert "lacks the variant" not in text
