import math
from dataclasses import astuple

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from harness.analysis.statistics import (
    PROCESS_BAND,
    IncomparableError,
    Ratio,
    _resamples,
    aa_band,
    across_processes,
    benjamini_hochberg,
    block_interval,
    estimate,
    geomean,
    mean_of_logs,
    median_and_spread,
    rank_interval,
    spans_agree,
    speedup,
    verdict,
)


def noisy(us, blocks=150, sd=0.01, seed=0):
    return us * np.exp(np.random.default_rng(seed).normal(0, sd, blocks))


def test_speedup_is_above_one_where_the_other_is_faster():
    ratio = speedup(noisy(20.0, seed=1), noisy(10.0, seed=2))
    assert ratio.low < 2.0 < ratio.high
    assert ratio.value == pytest.approx(2.0, rel=0.005)
    assert (ratio.high - ratio.low) / 2 < 0.01
    assert ratio.blocks == 150


def test_drift_that_all_share_cancels_inside_blocks():
    drift = np.linspace(1.0, 3.0, 150)
    still = speedup(noisy(20.0, seed=1), noisy(10.0, seed=2))
    drifting = speedup(noisy(20.0, seed=1) * drift, noisy(10.0, seed=2) * drift)
    assert astuple(drifting) == pytest.approx(astuple(still))
    shuffled = np.random.default_rng(3).permutation(drift)
    unpaired = speedup(noisy(20.0, seed=1) * drift, noisy(10.0, seed=2) * shuffled)
    assert unpaired.high - unpaired.low > 10 * (still.high - still.low)


@pytest.mark.parametrize(("blocks", "lag"), [(8, 0.0), (20, 0.0), (40, 0.0), (40, -0.5)])
def test_interval_covers_the_truth_as_often_as_it_says(blocks, lag):
    rng = np.random.default_rng(1)
    covered, repeats = 0, 300
    for _ in range(repeats):
        noise = rng.normal(0, 0.01, blocks + 1)
        ratio = speedup(10 * np.exp(noise[1:] + lag * noise[:-1]), np.full(blocks, 10.0))
        covered += ratio.low <= 1 <= ratio.high
    assert covered / repeats >= 0.92


@pytest.mark.parametrize("blocks", [20, 21, 300])
def test_interval_is_that_of_medians_of_resamples(blocks):
    """What is counted is what drawing and sorting would give, to the last bit, where values are equal as well."""
    values = np.round(np.random.default_rng(4).normal(0, 1, blocks), 1)
    medians = np.median(values[_resamples(blocks, round(blocks ** (1 / 3)))], axis=1)
    low, high = rank_interval(values)
    expected = np.percentile(medians, (2.5, 97.5))
    assert block_interval(values) == (min(low, expected[0]), max(high, expected[1]))


def test_few_blocks_give_the_widest_honest_interval():
    base = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
    six = speedup(base, [10.0] * 6)
    assert (six.low, six.high) == (pytest.approx(1.0), pytest.approx(1.5))
    five = speedup(base[:5], [10.0] * 5)
    assert (five.value, five.low, five.high) == (pytest.approx(1.2), 0.0, math.inf)
    assert verdict(five, 0.0) == "same"


def test_resamples_are_those_of_arch():
    """As arch 8.0.0 draws them with the same seed: `StationaryBootstrap(2, numpy.arange(9), seed=20)`."""
    assert _resamples(9, 2)[:2].tolist() == [[8, 2, 3, 4, 8, 0, 2, 4, 2], [3, 1, 0, 1, 2, 7, 8, 0, 0]]


def test_resamples_are_blocks_of_neighbours():
    resamples = _resamples(40, 5)
    assert sorted(set(resamples.ravel().tolist())) == list(range(40))
    follows = (np.diff(resamples, axis=1) % 40 == 1).mean()
    assert follows == pytest.approx(1 - 1 / 5 + 1 / 5 / 40, abs=0.01)  # a new block may begin where the old one ended
    assert resamples[0, :12].tolist() == [35, 36, 37, 18, 19, 20, 21, 22, 23, 16, 13, 14]


def test_speedup_is_the_same_every_time():
    assert speedup(noisy(20.0), noisy(10.0, seed=2)) == speedup(noisy(20.0), noisy(10.0, seed=2))


@pytest.mark.parametrize(
    ("base", "other"), [([], []), ([1.0], [1.0, 2.0]), ([1.0, 0.0], [1.0, 1.0]), ([1.0, math.nan], [1.0, 1.0])]
)
def test_what_is_no_pair_of_positive_samples_is_refused(base, other):
    with pytest.raises(IncomparableError):
        speedup(base, other)


def test_aa_band_of_one_process_has_a_minimum():
    """The band is what the A/A pair reads; of one process, it is at least the scatter between processes."""
    assert aa_band([Ratio(1.0, math.exp(-0.003), math.exp(0.001), 40)]) == PROCESS_BAND == 0.019
    assert aa_band([Ratio(1.02, math.exp(0.018), math.exp(0.022), 40)]) == pytest.approx(math.log(1.02))
    assert aa_band([Ratio(1 / 1.02, math.exp(-0.022), math.exp(-0.018), 40)]) == pytest.approx(math.log(1.02))
    assert aa_band([Ratio(1.0, 0.0, math.inf, 3)]) == math.inf


def test_band_errors_of_processes_do_not_cancel():
    fast, slow, exact = (Ratio(math.exp(log), 0.99, 1.01, 40) for log in (0.003, -0.003, 0.0))
    assert aa_band([fast, slow]) == pytest.approx(0.003)
    assert aa_band([exact, slow, exact, exact]) == pytest.approx(0.0015)
    assert aa_band([exact] * 3) == 0.0


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.02, 1.04, "faster"), (0.96, 0.98, "slower"), (1.005, 1.04, "same"), (0.9, 1.1, "same")],
)
def test_verdict_needs_the_whole_interval_outside_the_band(low, high, expected):
    assert verdict(Ratio((low + high) / 2, low, high, 40), 0.01) == expected


def test_median_and_spread():
    assert median_and_spread([8.0, 9.0, 10.0, 11.0, 12.0]) == (10.0, pytest.approx(0.1))
    assert all(math.isnan(value) for value in median_and_spread([]))


def test_geomean():
    assert geomean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(geomean([]))


BIAS_SD = 0.005  # between processes; the samples inside one scatter by 1 %


@pytest.mark.parametrize("processes", [3, 5])
def test_interval_across_processes_has_its_coverage(processes):
    rng, covered, repeats = np.random.default_rng(4), 0, 1000
    for _ in range(repeats):
        medians = [np.median(bias + rng.normal(0, 0.01, 40)) for bias in rng.normal(0, BIAS_SD, processes)]
        ratio = across_processes([Ratio(math.exp(median), 0.9, 1.1, 40) for median in medians])
        covered += ratio.low <= 1 <= ratio.high
    assert 0.93 <= covered / repeats <= 0.97


def test_interval_in_one_process_needs_the_band():
    """An interval from inside one process covers the truth too seldom."""
    rng, repeats = np.random.default_rng(5), 200
    found = [
        speedup(10 * np.exp(rng.normal(0, BIAS_SD) + rng.normal(0, 0.01, 40)), np.full(40, 10.0))
        for _ in range(repeats)
    ]
    assert sum(ratio.low <= 1 <= ratio.high for ratio in found) / repeats < 0.75
    assert sum(verdict(ratio, PROCESS_BAND) == "same" for ratio in found) / repeats > 0.95


def test_ratio_over_processes_uses_students_t():
    ratios = [Ratio(math.exp(log), 0.5, 2.0, 40) for log in (0.10, 0.11, 0.12)]
    combined = across_processes(ratios)
    half = 4.302652729696142 * 0.01 / math.sqrt(3)  # t of 2 degrees of freedom at 97.5 %
    assert astuple(combined) == pytest.approx((math.exp(0.11), math.exp(0.11 - half), math.exp(0.11 + half), 120, 3))
    assert across_processes(ratios[:1]) is ratios[0]


@pytest.mark.parametrize(
    ("event_us", "span_us", "agree"),
    [
        (12.5, 10.0, True),  # the share alone
        (13.5, 10.0, True),
        (13.6, 10.0, False),
        (11.4, 10.0, False),
        (205.0, 198.5, True),  # 2 % of a long one
        (205.0, 198.3, False),
    ],
)
def test_spans_agree_within_one_microsecond_or_two_per_cent(event_us, span_us, agree):
    assert spans_agree(event_us, span_us, 2.5) is agree


def test_a_ratio_of_several_processes_gives_its_t_test_back():
    logs = np.array([-0.031, -0.024, -0.035, -0.028, -0.030])
    ratios = [Ratio(math.exp(log), 1.0, 1.0, 120) for log in logs]
    known = estimate(across_processes(ratios))
    assert known.freedom == 4
    assert known.p_below(-0.01) == pytest.approx(ttest_1samp(logs, -0.01, alternative="less").pvalue)
    low, high = ttest_1samp(logs, 0.0).confidence_interval(0.9)
    assert known.bounds() == pytest.approx((low, high))


def test_one_process_is_never_surer_than_its_scatter():
    known = estimate(Ratio(math.exp(-0.03), math.exp(-0.033), math.exp(-0.029), 120))
    error = math.hypot(0.003 / 1.959964, PROCESS_BAND / 2.776445)
    assert (known.freedom, known.error) == (4, pytest.approx(error))
    assert known.p_below(-0.01) == pytest.approx(t.cdf(-0.02 / error, 4))
    assert estimate(Ratio(0.9, 0.0, math.inf, 3)).p_below(-0.01) == 0.5


def test_equal_processes_leave_no_doubt():
    known = estimate(Ratio(0.95, 0.95, 0.95, 600, 5))
    assert (known.p_below(-0.01), known.p_below(-0.1)) == (0.0, 1.0)


def test_geomean_uses_the_larger_standard_error():
    """The error of the mean is taken over the cases or over the processes, whichever is less certain."""
    cells = np.array([-0.008, -0.011, -0.004, -0.009])
    processes = np.array([-0.003, 0.0, 0.003])
    uneven, biased = cells[:, None] + processes / 9, cells[:, None] / 9 + processes - 0.01
    for logs, axis in ((uneven, 1), (biased, 0)):
        expected = ttest_1samp(logs.mean(axis=axis), -0.005, alternative="less").pvalue
        assert mean_of_logs(logs).p_below(-0.005) == pytest.approx(expected)


def test_geomean_in_one_process_keeps_its_scatter():
    known = mean_of_logs([[-0.011]] * 60)
    assert (known.freedom, known.error) == (4, pytest.approx(PROCESS_BAND / 2.776445))
    assert known.p_below(-0.005) == pytest.approx(t.cdf(-0.006 / known.error, 4))


def test_p_values_are_adjusted_by_benjamini_hochberg():
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert benjamini_hochberg([]) == []
