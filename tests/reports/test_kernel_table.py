from harness.analysis.comparison import compare
from harness.records.schema import Kernel
from reports.parts.kernel_table import agreement, case_table, render
from tests.results_factory import budget, profiled, results, row, selftest, thorough

APART = profiled(row("quack", 60.0), ("a", 0.0, 50.0), event_off=9.0)


def test_golden(golden):
    golden("thorough.kernels.md", render(compare(thorough())))


def test_the_mark_stands_where_they_disagree_and_only_there():
    near = profiled(row("liger", 60.0), ("a", 0.0, 50.0), event_off=2.0)
    rows = case_table(compare(results(APART, near, selftests=[selftest()])).cases[0], budget()).splitlines()[2:]
    assert [("(!)" in line, "quack" in line) for line in rows] == [(False, False), (True, True)]


def test_without_a_self_test_nothing_is_said_of_agreement():
    comparison = compare(results(APART))
    assert agreement(comparison) == ""
    assert "difference" not in case_table(comparison.cases[0], None)
    assert "| 60.0" in " ".join(case_table(comparison.cases[0], None).split())


def test_kernel_with_own_events_has_both_times():
    timed = row("quack", 60.0, kernels=[Kernel(name="rows", median_us=46.0, event_us=47.5)])
    assert "`rows` 46.0 (events 47.5)" in case_table(compare(results(timed)).cases[0], None)
