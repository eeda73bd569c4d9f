import pytest

from harness.analysis.comparison import compare
from harness.records.schema import Check
from reports.parts.caveats import failed_checks
from reports.parts.selftest import ASK, details, page, render
from reports.parts.yardsticks import budget_sentence
from tests.results_factory import COLD, budget, mixed, results, row, selftest


def test_golden(golden):
    text = render([selftest(), selftest(COLD, when="after", process=1, fixed_us=1.9)])
    assert max(map(len, text.splitlines())) <= 120
    golden("selftest.txt", text)


def test_the_page_of_a_run(golden):
    tests = [selftest(), selftest(COLD, when="after", fixed_us=1.9)]
    golden("selftest.md", page(results(row("quack", 60.0), selftests=tests)))
    assert page(results(row("quack", 60.0))) == ASK


def test_a_long_detail_and_markup_still_fit():
    check = Check(name="linear [/red]", passed=True, value=1.0, unit="%", detail="very [bold] long " * 20)
    text = render([selftest(check, when="alone")])
    assert max(map(len, text.splitlines())) <= 120
    assert "linear [/red]" in text


@pytest.mark.parametrize(("passed", "word"), [(True, "passed"), (False, "FAILED"), (None, "not here")])
def test_each_outcome_has_a_word(passed, word):
    check = Check(name="coldness", passed=passed, value=1.0, unit="%")
    assert word in render([selftest(check, when="alone")])
    assert word in details([selftest(check)])


def test_the_budget_in_a_sentence():
    assert budget_sentence(budget()) == (
        "The engine's own error, by its self-test: a time ±1.6 us ±0.30 %, a ratio ±0.10 %; t0 1.28 us; "
        "a copy moves 4276 GB/s."
    )
    assert budget_sentence(budget(copy_gbps=None)).endswith("t0 1.28 us.")


def test_worst_failure_names_number_of_processes():
    worse = COLD.model_copy(update={"value": 4.0})
    assert failed_checks([selftest()]) == []
    assert failed_checks([selftest(COLD)]) == ["The self-test before the cases failed: coldness 3.1 % (limit 2 %)."]
    found = failed_checks(
        [selftest(COLD), selftest(worse, process=1), selftest(process=2), selftest(COLD, when="after")]
    )
    assert found == [
        "The self-test before the cases failed: coldness 4 % (limit 2 %) in 2 of 3 processes.",
        "The self-test after the cases failed: coldness 3.1 % (limit 2 %).",
    ]
    bare = Check(name="side stream", passed=False)
    assert failed_checks([selftest(bare, when="alone")]) == ["The self-test failed: side stream."]


def test_a_file_without_self_tests_has_no_table():
    assert details(compare(mixed()).selftests) == ""


def test_a_failure_within_its_limit_says_by_what_it_failed():
    missed = Check(name="planted +1%", passed=False, value=0.2, limit=0.5, unit="%", detail="not told from A/A")
    assert failed_checks([selftest(missed)]) == [
        "The self-test before the cases failed: planted +1%: not told from A/A (0.20 %, limit 0.50 %)."
    ]
    assert failed_checks([selftest(missed), selftest(process=1)]) == [
        "The self-test before the cases failed: planted +1% in 1 of 2 processes: not told from A/A "
        "(0.20 %, limit 0.50 %)."
    ]
    beyond = missed.model_copy(update={"value": 0.6})
    assert failed_checks([selftest(beyond)]) == [
        "The self-test before the cases failed: planted +1% 0.60 % (limit 0.50 %)."
    ]


def test_events_that_read_less_than_the_profiler_are_told_by_that():
    """A check of the first files failed by it alone, and has a figure of something else that is within its limit."""
    named = {"name": "events against profiler", "passed": False, "limit": 1.0, "unit": "us"}
    told = "events read -{} us more than one kernel's lead and span; others agree to 1 us or 2 %"
    a_little = Check(value=0.7, detail=told.format("0.03"), **named)
    more = Check(value=0.2, detail=told.format("0.10"), **named)
    less = "around one kernel, and must not read less"
    assert failed_checks([selftest(a_little), selftest(more, process=1), selftest(process=2)]) == [
        "The self-test before the cases failed: events against profiler in 2 of 3 processes: "
        f"events read 0.10 us less than the profiler {less}."
    ]
    beyond = a_little.model_copy(update={"value": 3.0})
    assert failed_checks([selftest(beyond)]) == [
        "The self-test before the cases failed: events against profiler 3.00 us (limit 1.00 us)."
    ]


def test_two_failures_stand_apart():
    other = Check(name="linearity", passed=False, value=3.0, limit=2.0, unit="%")
    assert failed_checks([selftest(COLD, other)]) == [
        "The self-test before the cases failed: coldness 3.1 % (limit 2 %); linearity 3 % (limit 2 %)."
    ]
