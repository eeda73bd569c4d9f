from harness.analysis.comparison import compare
from harness.records.schema import Check
from reports.parts.caveats import failed_checks
from reports.parts.selftest import details, render
from tests.results_factory import COLD, mixed, selftest


def test_golden(golden):
    text = render([selftest(), selftest(COLD, when="after", process=1, fixed_us=1.9)])
    assert max(map(len, text.splitlines())) <= 120
    golden("selftest.txt", text)


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
