import pytest

from harness.analysis.kernel_spans import agrees, disagreement_us, segments
from harness.records.schema import Kernel, KernelTotals
from tests.results_factory import budget


def line(*kernels):
    found = segments([Kernel(name="k", start_us=start, median_us=length) for start, length in kernels])
    return [(each.start_us, each.length_us, each.kernel) for each in found]


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        ([(0, 10), (10, 5)], [(0, 10, 0), (10, 5, 1)]),
        ([(0, 10), (12, 5)], [(0, 10, 0), (10, 2, None), (12, 5, 1)]),
        ([(0, 10), (8, 5)], [(0, 10, 0), (10, 3, 1)]),
        ([(0, 10), (2, 5), (9, 3)], [(0, 10, 0), (10, 2, 2)]),
        ([(5, 4), (0, 5)], [(0, 5, 1), (5, 4, 0)]),
        ([(1, 4)], [(0, 1, None), (1, 4, 0)]),
        ([], []),
    ],
)
def test_each_moment_counts_once(kernels, expected):
    assert line(*kernels) == expected


def test_lengths_without_gaps_are_the_union():
    found = line((0, 10), (4, 3), (8, 6), (20, 1), (20.5, 2))
    assert sum(length for _, length, kernel in found if kernel is not None) == pytest.approx(14 + 2.5)
    assert sum(length for _, length, _ in found) == pytest.approx(22.5)


def test_kernels_of_unknown_begin_stand_end_to_end():
    assert line((None, 10), (None, 5)) == [(0, 10, 0), (10, 5, 1)]
    assert line((0, 10), (None, 5)) == [(0, 10, 0), (10, 5, 1)]


TOTALS = KernelTotals(sum_us=60.0, union_us=52.0, span_us=55.0, event_us=57.0)


@pytest.mark.parametrize(
    ("offset", "difference", "agreeing"), [(1.5, 0.5, True), (0.5, 1.5, False), (3.5, -1.5, False)]
)
def test_events_against_the_profiler(offset, difference, agreeing):
    found = budget(event_offset_us=offset)
    assert disagreement_us(TOTALS, found) == pytest.approx(difference)
    assert agrees(TOTALS, found) is agreeing


@pytest.mark.parametrize(("totals", "of"), [(None, budget()), (TOTALS, None), (TOTALS, budget(event_offset_us=None))])
def test_what_is_unknown_neither_agrees_nor_not(totals, of):
    assert disagreement_us(totals, of) is None
    assert agrees(totals, of) is None
