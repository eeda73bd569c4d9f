import math

import pytest

from harness.timing.stopping import StoppingRule, ratio_half_width, widest_ratio

RULE = StoppingRule(min_blocks=10, max_blocks=40, half_width=0.01, budget_s=5.0)
STEADY = [10.0] * 100


def noisy(count, width):
    """Samples that scatter by a factor of exp(width) around 10, evenly above and below."""
    return [10.0 * math.exp(width if block % 2 else -width) for block in range(count)]


def enough(first, other, attempted=None, spent_s=0.0, rule=RULE):
    return rule.enough({"A": first, "B": other}, len(first) if attempted is None else attempted, spent_s)


def test_exact_ratio_stops_at_minimum_blocks():
    assert not enough(STEADY[:9], STEADY[:9])
    assert enough(STEADY[:10], STEADY[:10])


def test_an_uncertain_ratio_goes_on_to_the_most():
    for count in (10, 20, 38):
        assert not enough(noisy(count, 0.2), STEADY[:count])
    assert enough(noisy(40, 0.2), STEADY[:40])


def test_the_budget_ends_an_uncertain_case():
    assert not enough(noisy(20, 0.2), STEADY[:20], spent_s=4.999)
    assert enough(noisy(20, 0.2), STEADY[:20], spent_s=5.0)


def test_slow_case_still_takes_three_blocks():
    assert not enough(STEADY[:2], STEADY[:2], spent_s=1e6)
    assert enough(STEADY[:3], STEADY[:3], spent_s=5.0)
    assert not enough(STEADY[:3], STEADY[:3], spent_s=4.9)


def test_void_blocks_count_only_for_the_maximum():
    assert not enough(STEADY[:9], STEADY[:9], attempted=39)
    assert enough(STEADY[:9], STEADY[:9], attempted=40)
    assert enough([], [], attempted=40)
    assert not enough([], [], attempted=39, spent_s=1e6)


def test_half_width_is_from_the_sign_test_interval():
    ladder = [10.0 * math.exp(0.001 * block) for block in range(40)]  # 40 values: the 14th from either end
    assert ratio_half_width(ladder, STEADY[:40]) == pytest.approx(0.001 * (26 - 13) / 2)


def test_drift_that_both_share_is_no_uncertainty():
    drift = [10.0 * 1.05**block for block in range(30)]
    assert ratio_half_width(drift, [2 * us for us in drift]) == pytest.approx(0.0, abs=1e-12)
    assert enough(drift, [2 * us for us in drift])


def test_the_least_certain_ratio_decides():
    samples_us = {"A": STEADY[:16], "B": noisy(16, 0.001), "C": noisy(16, 0.1)}
    assert widest_ratio(samples_us) == ratio_half_width(STEADY[:16], noisy(16, 0.1))
    assert not RULE.enough(samples_us, 16, 0.0)
    assert RULE.enough({"A": samples_us["A"], "B": samples_us["B"]}, 16, 0.0)
