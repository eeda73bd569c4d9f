import math

import pytest

from reports.data.intervals import of_quotient, of_time
from tests.results_factory import timing


def test_one_process_is_judged_by_ranks():
    of_ten = timing(1.0).model_copy(
        update={"samples_us": [float(us) for us in range(1, 11)], "blocks": list(range(10))}
    )
    assert of_time([of_ten]) == pytest.approx(
        (2.0, 9.0)
    )  # the second from either end holds the median of ten in 97.9 %


def test_few_samples_have_no_interval():
    assert of_time([timing(10.0, blocks=5)]) == (0.0, math.inf)


def test_several_processes_are_judged_by_their_medians():
    low, high = of_time([timing(us, noise=0.0, drift=0.0) for us in (9.0, 10.0, 11.0)])
    assert low < 9.0
    assert high > 11.0
    assert math.sqrt(low * high) == pytest.approx((9.0 * 10.0 * 11.0) ** (1 / 3))


def test_drift_that_both_share_is_no_doubt():
    low, high = of_quotient([timing(10.0, drift=0.5, noise=0.0)], [timing(20.0, drift=0.5, noise=0.0)])
    assert (low, high) == pytest.approx((0.5, 0.5))
    assert of_quotient([timing(10.0, group="a")], [timing(20.0, group="b")]) is None
