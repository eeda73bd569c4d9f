from harness.analysis.comparison import compare
from reports.formats.markdown import render
from tests.results_factory import helpers, mixed, results, row, thorough, verified_only


def test_full_report(golden):
    golden("mixed.md", render(compare(mixed())))


def test_full_report_of_a_thorough_run(golden):
    golden("thorough.md", render(compare(thorough())))


def test_verification_only(golden):
    golden("verified_only.md", render(compare(verified_only())))


def test_a_failed_row_has_no_time_anywhere():
    rows = [row("torch-eager", 100.0), row("quack", 1.2345, status="wrong", reason="a | b <c>")]
    text = render(compare(results(*rows, *helpers(100.0, 46.0))))
    assert "1.23" not in text
    assert r"a \| b \<c>" in text


def test_a_file_without_rows_is_still_a_report():
    assert "0 of 4 cases" in render(compare(results(jobs=4, ended=False)))


def test_what_ran_alone_is_fastest_of_nothing():
    text = render(compare(results(row("torch-eager", 100.0), *helpers(100.0, 46.0))))
    assert "torch-eager alone was ranked, in 1 case: there is nothing to compare it with." in text
    assert "is fastest in" not in text
