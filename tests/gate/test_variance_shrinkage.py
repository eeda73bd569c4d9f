from dataclasses import replace

import numpy as np
import pytest

from harness.analysis.statistics import Estimate
from harness.gate.variance_shrinkage import FEWEST_CASES, shrunk, shrunk_variances


def drawn(seed, cells, freedom, prior=None):
    """Variances of so many cells: all truly 2, or from the distribution that is assumed, with 2 for its scale."""
    rng = np.random.default_rng(seed)
    true = 2.0 if prior is None else 2.0 * prior / rng.chisquare(prior, cells)
    return true * rng.chisquare(freedom, cells) / freedom


def test_chance_differences_shrink_halfway():
    own = drawn(0, 500, 4)
    found, freedom = shrunk_variances(own, 4)
    assert set(freedom) == {8.0}  # what is common weighs no more than what a cell showed
    assert np.ptp(found) == pytest.approx(np.ptp(own) / 2)
    assert found == pytest.approx((own + 2.0) / 2, rel=0.1)


def test_prior_of_the_variances_is_recovered():
    own = drawn(1, 20_000, 10, prior=4.0)
    found, freedom = shrunk_variances(own, 10)
    assert freedom == pytest.approx(np.full(20_000, 14.0), rel=0.02)
    assert found == pytest.approx((4 * 2.0 + 10 * own) / 14, rel=0.05)


def test_unrelated_variances_hardly_shrink():
    own = 10.0 ** np.arange(-2, 4)
    found, freedom = shrunk_variances(own, 4)
    assert freedom.tolist() == [freedom[0]] * 6
    assert 4.0 < freedom[0] < 4.7
    assert found[1:] == pytest.approx(own[1:], rel=0.3)


@pytest.mark.parametrize("cells", range(1, FEWEST_CASES))
def test_too_few_cells_show_nothing_of_each_other(cells):
    own = drawn(0, cells, 4)
    found, freedom = shrunk_variances(own, 4)
    assert found.tolist() == own.tolist()
    assert freedom.tolist() == [4.0] * cells


def test_cells_without_any_scatter_are_no_obstacle():
    assert shrunk_variances([0.0, 0.0, 0.0, 1.0], 4)[0].tolist() == [0.0, 0.0, 0.0, 1.0]
    found, freedom = shrunk_variances([0.0, 1.0, 1.1, 0.9], 4)
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert (freedom >= 4).all()


def test_more_processes_mean_less_shrinkage():
    own = drawn(0, 60, 4)
    freedoms = np.where(np.arange(60) == 0, 9.0, 4.0)
    found, freedom = shrunk_variances(own, freedoms)
    assert (freedom[0], freedom[1]) == (18.0, 8.0)
    assert found.shape == own.shape


def test_means_keep_their_values_and_get_other_errors():
    means = [Estimate(0.1 * cell, error, 4) for cell, error in enumerate((0.001, 0.004, 0.002, 0.003))]
    found = shrunk(means)
    assert [each.value for each in found] == [each.value for each in means]
    variances, freedoms = shrunk_variances([5 * each.error**2 for each in means], 4)
    assert [each.error for each in found] == pytest.approx(np.sqrt(variances / 5).tolist())
    assert [each.freedom for each in found] == pytest.approx(freedoms.tolist())
    some = [replace(each, freedom=freedom) for each, freedom in zip(means, (4, 9, 2, 4), strict=True)]
    variances, _ = shrunk_variances(
        [n * each.error**2 for each, n in zip(some, (5, 10, 3, 5), strict=True)], [4, 9, 2, 4]
    )
    assert [each.error for each in shrunk(some)] == pytest.approx(np.sqrt(variances / (5, 10, 3, 5)).tolist())
    assert shrunk([]) == []
    assert shrunk(means[:2]) == means[:2]
