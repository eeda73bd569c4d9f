import math

import pytest

from harness.analysis.pairing import paired, time_interval, why_not_interleaved
from harness.records.schema import Timing
from tests.results_factory import timing
from tests.wording import worded


def test_one_process_is_judged_by_ranks():
    of_ten = timing(1.0).model_copy(
        update={"samples_us": [float(us) for us in range(1, 11)], "blocks": list(range(10))}
    )
    assert time_interval([of_ten]) == pytest.approx(
        (2.0, 9.0)
    )  # the second from either end holds the median of ten in 97.9 %


def test_few_samples_have_no_interval():
    assert time_interval([timing(10.0, blocks=5)]) == (0.0, math.inf)


def test_several_processes_are_judged_by_their_medians():
    low, high = time_interval([timing(us, noise=0.0, drift=0.0) for us in (9.0, 10.0, 11.0)])
    assert low < 9.0
    assert high > 11.0
    assert math.sqrt(low * high) == pytest.approx((9.0 * 10.0 * 11.0) ** (1 / 3))


def test_samples_are_paired_by_block_number():
    base = Timing(group="g", flush="clean", samples_us=[10.0, 20.0, 40.0], blocks=[0, 1, 3])
    other = Timing(group="g", flush="clean", samples_us=[20.0, 10.0, 7.0], blocks=[3, 1, 2])
    (pair,) = paired({4: base}, {4: other})
    assert (pair.process, pair.base_us, pair.other_us) == (4, [20.0, 40.0], [10.0, 20.0])
    assert (pair.speedup.value, pair.speedup.blocks) == (pytest.approx(2.0), 2)
    assert (math.exp(pair.median_log), pair.ratio_of_medians) == pytest.approx((2.0, 2.0))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({0: timing(10.0, group="g2")}, "process 0: timed in different groups, g1 and g2"),
        ({0: timing(10.0, flush="dirty")}, "process 0: timed with different flushes, clean and dirty"),
        ({0: Timing(group="g1", flush="clean", samples_us=[10.0], blocks=[99])}, "process 0: no block holds both"),
        ({1: timing(10.0, group="g1")}, "no process timed both"),
        ({}, "no process timed both"),
    ],
)
def test_what_was_not_interleaved_makes_no_pair(other, why):
    assert paired({0: timing(20.0)}, other) == []
    assert worded(why_not_interleaved({0: timing(20.0)}, other)) == why


def test_a_process_that_one_of_them_lacks_is_left_out():
    base = {process: timing(20.0, group=f"p{process}") for process in (2, 0, 1)}
    other = {process: timing(10.0, group=f"p{process}", shift=1) for process in (0, 2)}
    assert [pair.process for pair in paired(base, other)] == [0, 2]
    assert why_not_interleaved(base, other) is None
