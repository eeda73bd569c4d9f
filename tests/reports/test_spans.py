import pytest

from harness.analysis.comparison import compare
from reports.studies.spans import ASK, render
from tests.results_factory import LAYER, profiled, results, row, selftest, thorough


def cells(page, impl):
    line = next(line for line in page.splitlines() if line.startswith(f"| {impl} "))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_golden(golden):
    golden("thorough.spans.md", render(compare(thorough())))


@pytest.mark.parametrize(("off", "within"), [(1.4, "2 of 2 (100.0 %)"), (9.0, "1 of 2 (50.0 %)")])
def test_row_has_smallest_median_and_largest_gap(off, within):
    near = profiled(row("quack", 60.0), ("a", 0.0, 50.0), event_off=1.5)
    far = profiled(row("quack", 60.0, LAYER), ("a", 0.0, 50.0), event_off=1.5 + off - 0.5)
    page = render(compare(results(near, far, selftests=[selftest(event_offset_us=1.5)])))
    half = f"{(off - 0.5) / 2:+.2f}"
    assert cells(page, "quack") == [within, "+0.00", half, f"{off - 0.5:+.2f}"]


def test_no_selftest_or_profile_gives_no_table():
    bare = profiled(row("quack", 60.0), ("a", 0.0, 50.0), event_off=1.5)
    assert render(compare(results(bare))) == ASK
    assert render(compare(results(row("quack", 60.0), selftests=[selftest()]))) == ASK
