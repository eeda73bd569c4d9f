import math

import pytest

from harness.timing.stopping import MEDIAN_PENALTY, StoppingRule, ratio_half_width, widest_ratio

RULE = StoppingRule(min_blocks=10, max_blocks=40, half_width=0.01, budget_s=5.0)
STEADY = [10.0] * 100


def noisy(count, width):
    """Samples that scatter by a factor of exp(width) around 10, evenly above and below."""
    return [10.0 * math.exp(width if block % 2 else -width) for block in range(count)]


def enough(first, other, attempted=None, spent_s=0.0, rule=RULE):
    return rule.enough({"A": first, "B": other}, len(first) if attempted is None else attempted, spent_s)


def test_a_perfectly_known_ratio_stops_at_the_least_number_of_blocks():
    assert not enough(STEADY[:9], STEADY[:9])
    assert enough(STEADY[:10], STEADY[:10])


def test_an_uncertain_ratio_goes_on_to_the_most():
    for count in (10, 20, 38):
        assert not enough(noisy(count, 0.2), STEADY[:count])
    assert enough(noisy(40, 0.2), STEADY[:40])


def test_the_budget_ends_an_uncertain_case():
    assert not enough(noisy(20, 0.2), STEADY[:20], spent_s=4.999)
    assert enough(noisy(20, 0.2), STEADY[:20], spent_s=5.0)


def test_a_slow_case_keeps_three_blocks_however_long_they_take():
    assert not enough(STEADY[:2], STEADY[:2], spent_s=1e6)
    assert enough(STEADY[:3], STEADY[:3], spent_s=5.0)
    assert not enough(STEADY[:3], STEADY[:3], spent_s=4.9)


def test_voided_blocks_count_against_the_most_but_not_for_the_least():
    assert not enough(STEADY[:9], STEADY[:9], attempted=39)
    assert enough(STEADY[:9], STEADY[:9], attempted=40)
    assert enough([], [], attempted=40)
    assert not enough([], [], attempted=39, spent_s=1e6)


def test_before_the_first_block_nothing_is_enough():
    assert not RULE.enough({"A": [], "B": []}, 0, 0.0)


def test_the_half_width_is_that_of_a_median_of_log_ratios():
    count, width = 64, 0.02
    expected = 1.96 * MEDIAN_PENALTY * 1.4826 * width / math.sqrt(count)
    assert ratio_half_width(noisy(count, width), STEADY[:count]) == pytest.approx(expected)


def test_the_half_width_shrinks_with_the_root_of_the_blocks():
    assert ratio_half_width(noisy(16, 0.1), STEADY[:16]) == pytest.approx(
        2 * ratio_half_width(noisy(64, 0.1), STEADY[:64])
    )


def test_drift_that_both_share_is_no_uncertainty():
    drift = [10.0 * 1.05**block for block in range(30)]
    assert ratio_half_width(drift, [2 * us for us in drift]) == pytest.approx(0.0, abs=1e-12)
    assert enough(drift, [2 * us for us in drift])


def test_the_least_certain_ratio_decides():
    samples_us = {"A": STEADY[:16], "B": noisy(16, 0.001), "C": noisy(16, 0.1)}
    assert widest_ratio(samples_us) == ratio_half_width(STEADY[:16], noisy(16, 0.1))
    assert not RULE.enough(samples_us, 16, 0.0)
    assert RULE.enough({"A": samples_us["A"], "B": samples_us["B"]}, 16, 0.0)


def test_ratios_are_over_the_first_candidate():
    noise = noisy(16, 0.1)
    assert widest_ratio({"A": STEADY[:16], "B": noise}) > 0.05
    # B and C scatter together: over A both are uncertain, though B over C is not.
    assert widest_ratio({"B": noise, "C": [3 * us for us in noise]}) == pytest.approx(0.0, abs=1e-12)


def test_one_candidate_alone_has_no_ratio():
    assert widest_ratio({"A": STEADY}) == 0.0


def test_samples_that_do_not_match_are_an_error_not_a_shorter_list():
    with pytest.raises(ValueError, match="zip"):
        ratio_half_width(STEADY[:5], STEADY[:4])
