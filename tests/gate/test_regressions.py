import math
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.statistics import PROCESS_BAND
from harness.gate.judge import judge
from harness.gate.limits import Limits, Regression, read_limits
from tests.results_factory import CASE, LAYER, gateable, in_processes, row, selftest, timing, twin
from tests.wording import worded

HEAD, BASE = "mine@head", "mine@base"
CASES = [replace(CASE, rows=1024 * 2**power) for power in range(4)]
FIVE = (1.0, 1.01, 0.99, 1.005, 0.995)


def pair(case, slower=0.0, head=(), base=(), aa=0.0):
    """Base, its twin, and a head that is slower by a log ratio; the statuses of both as asked."""
    return [
        row(BASE, 50.0, case, **dict(base)),
        row(HEAD, 50.0 * math.exp(slower), case, **dict(head)),
        twin(BASE, 50.0, case, aa, shift=0),
    ]


def judged(*rows, selftests=(), processes=FIVE, bias=(), **asked):
    measured = in_processes(*rows, scales=processes, bias=bias) if processes else rows
    regression = Regression(**{"head": HEAD, "base": BASE, **asked})
    return judge(gateable(*measured, selftests=selftests), Limits(regression=[regression]))


def outcomes(*rows, **asked):
    """The outcome of each case, the geometric mean's last."""
    return [verdict.outcome for verdict in judged(*rows, **asked)]


def outcome(*rows, **asked):
    (only,) = outcomes(*rows, **asked)
    return only


SCATTER = {(HEAD, "impl", process): scale for process, scale in enumerate((0.985, 1.015, 0.99, 1.0, 1.01))}


def test_same_speed_passes_and_large_loss_fails():
    assert outcome(*pair(CASE)) == "PASS"
    assert outcome(*pair(CASE, 0.05)) == "REGRESSED"
    assert outcome(*pair(CASE, -0.05)) == "PASS"


def test_loss_below_delta_passes_and_delta_can_be_set():
    assert outcome(*pair(CASE, 0.008)) == "PASS"
    assert outcome(*pair(CASE, 0.02)) == "REGRESSED"
    assert outcome(*pair(CASE, 0.02), minimum_effect=0.03) == "PASS"


def test_delta_is_at_least_the_aa_band_of_the_case():
    (verdict,) = judged(*pair(CASE, 0.02, aa=0.03))
    assert (verdict.outcome, round(verdict.loss.delta, 6)) == ("PASS", 0.03)
    (verdict,) = judged(*pair(CASE, 0.02, aa=0.004))
    assert (verdict.outcome, verdict.loss.delta) == ("REGRESSED", math.log1p(0.01))


def test_processes_that_disagree_leave_a_loss_open():
    (verdict,) = judged(*pair(CASE, 0.01), bias=SCATTER)
    assert verdict.outcome == "INCONCLUSIVE"
    assert verdict.loss.low < math.exp(-verdict.loss.delta) < verdict.loss.high


def test_one_process_has_at_least_its_scatter():
    (verdict,) = judged(*pair(CASE, 0.012), processes=None)
    assert verdict.outcome == "INCONCLUSIVE"
    assert verdict.loss.high / verdict.loss.low > math.exp(1.5 * PROCESS_BAND)
    assert outcome(*pair(CASE, 0.05), processes=None) == "REGRESSED"
    assert outcome(*pair(CASE), processes=None) == "PASS"


def test_no_aa_pair_or_no_interval_is_inconclusive():
    head, base, _ = pair(CASE, 0.05)
    assert outcome(head, base) == "INCONCLUSIVE"
    few = [each.model_copy(update={"timing": timing(50.0, blocks=3)}) for each in pair(CASE)]
    assert outcome(*few, processes=None) == "INCONCLUSIVE"


def test_many_cases_are_looked_at_together():
    """What one case alone would be called regressed for is not enough among many that did not."""
    alone = judged(*pair(CASES[0], 0.0245), bias=SCATTER)[0]
    many = [each for case in CASES for each in pair(case, 0.0245 if case is CASES[0] else 0.0)]
    among = judged(*many, bias=SCATTER)[0]
    assert (
        among.loss.p < alone.loss.p < 0.05 < among.loss.adjusted
    )  # it knows the scatter better, and that is not enough
    assert (alone.outcome, among.outcome) == ("REGRESSED", "INCONCLUSIVE")


def test_geomean_finds_a_small_loss_on_all_cases():
    rows = [each for case in CASES for each in pair(case, 0.008)]
    assert outcomes(*rows) == ["PASS"] * 4 + ["REGRESSED"]
    assert outcomes(*rows, geomean_effect=0.01) == ["PASS"] * 5
    verdict = judged(*rows)[-1]
    assert (verdict.case, verdict.loss.cases, verdict.loss.delta) == (None, 4, math.log1p(0.005))
    assert verdict.loss.speedup == pytest.approx(math.exp(-0.008), rel=1e-3)


def test_unequal_gains_keep_the_geomean_passing():
    rows = [each for case, by in zip(CASES, (0.0, 0.0, 0.0, -0.7), strict=True) for each in pair(case, by)]
    assert outcomes(*rows) == ["PASS"] * 5


def test_a_loss_on_one_case_leaves_the_mean_open():
    rows = [each for case, by in zip(CASES, (0.0, 0.0, 0.0, 0.1), strict=True) for each in pair(case, by)]
    assert outcomes(*rows) == ["PASS"] * 3 + ["REGRESSED", "INCONCLUSIVE"]


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout", "oom", "unsupported"])
def test_failing_head_regresses_whatever_its_speed(status):
    failed = {"status": status, "reason": "off"}
    (verdict,) = judged(*pair(CASE, -1.0, head=failed))
    assert (verdict.outcome, verdict.loss) == ("REGRESSED", None)
    assert f"mine@head is {status}: off" in worded(verdict.reason)


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout", "oom", "unsupported"])
def test_a_head_that_mended_its_base_passes(status):
    (verdict,) = judged(*pair(CASE, 1.0, base={"status": status, "reason": "off"}))
    assert (verdict.outcome, verdict.loss) == ("PASS", None)
    assert f"mine@base is {status}: off" in worded(verdict.reason)


def test_determinism_may_not_be_lost_unless_it_is_waived():
    unsteady = {"status": "nondeterministic", "reason": "2 of 50 runs differ"}
    assert outcome(*pair(CASE, head=unsteady)) == "REGRESSED"
    assert outcome(*pair(CASE, head=unsteady), allow_nondeterministic=True) == "PASS"
    assert outcome(*pair(CASE, 0.05, head=unsteady), allow_nondeterministic=True) == "REGRESSED"
    assert outcome(*pair(CASE, head=unsteady, base=unsteady)) == "PASS"
    assert outcome(*pair(CASE, base=unsteady)) == "PASS"


@pytest.mark.parametrize("side", ["head", "base"])
def test_what_was_not_measured_is_an_error_not_a_pass(side):
    assert outcome(*pair(CASE, **{side: {"status": "missing", "reason": "not installed"}})) == "ERROR"
    gone = {"head": HEAD, "base": BASE}[side]
    rows = [*pair(CASE), *(each for each in pair(LAYER) if each.impl != gone or each.role != "impl")]
    assert outcomes(*rows) == ["PASS", "ERROR"]


def test_a_case_that_neither_side_supports_is_nothing_to_lose():
    refused = {"status": "unsupported", "reason": "too wide"}
    neither = pair(LAYER, head=refused, base=refused)
    assert outcomes(*pair(CASE), *neither) == ["PASS"]
    assert outcome(*neither) == "ERROR"


def test_empty_selection_is_an_error():
    rows = [*pair(CASE), *pair(LAYER, 0.05)]
    assert outcomes(*rows) == ["PASS", "REGRESSED", "INCONCLUSIVE"]
    assert outcomes(*rows, norm="rms") == ["PASS"]
    assert outcomes(*rows, cols=(2048, 2048)) == ["REGRESSED"]
    assert outcomes(*rows, rows=(1, 2)) == ["ERROR"]


def test_times_that_cannot_be_compared_are_an_error():
    assert outcome(*pair(CASE), selftests=[selftest(t0_us=20.0)]) == "ERROR"
    head = row(HEAD, 50.0, timed=timing(50.0, group="other"))
    assert outcome(pair(CASE)[0], head, pair(CASE)[2], processes=None) == "ERROR"


def test_no_mean_is_taken_over_cases_that_no_process_shares():
    """On a fleet each process may have had a GPU with a large t0, each for another case, and is set aside there."""
    gpus = {(CASE, 0): 0, (CASE, 1): 1, (LAYER, 0): 1, (LAYER, 1): 0}
    measured = in_processes(*pair(CASE), *pair(LAYER), scales=(1.0, 1.0))
    rows = [each.model_copy(update={"gpu": gpus[each.case, each.process]}) for each in measured]
    tests = [selftest(process=process, t0_us=20.0 if gpu else 1.0) for process in (0, 1) for gpu in (0, 1)]
    selftests = [test.model_copy(update={"gpu": gpu}) for test, gpu in zip(tests, (0, 1, 0, 1), strict=True)]
    found = judge(gateable(*rows, selftests=selftests), Limits(regression=[Regression(head=HEAD, base=BASE)]))
    assert [verdict.outcome for verdict in found] == ["PASS", "PASS", "INCONCLUSIVE"]
    assert worded(found[-1].reason).startswith("no process measured all cases")


def test_a_head_that_was_not_verified_passes_nothing_even_where_its_base_failed():
    rows = in_processes(*pair(CASE, base={"status": "wrong", "reason": "off"}), scales=FIVE)
    rows = [each.model_copy(update={"verification": None}) if each.impl == HEAD else each for each in rows]
    (verdict,) = judge(gateable(*rows), Limits(regression=[Regression(head=HEAD, base=BASE)]))
    assert (verdict.outcome, worded(verdict.reason)) == (
        "INCONCLUSIVE",
        f"{HEAD}: no record of a verification that gives its status",
    )


def test_the_example_asks_for_what_compare_names():
    (asked,) = read_limits(Path("examples/gate-pull-request.toml")).regression
    workflow = Path("examples/github-actions.yml").read_text(encoding="utf-8")
    name = asked.head.removesuffix("@head")
    assert asked.names == (f"{name}@head", f"{name}@base")
    assert f"impls: {name}\n" in workflow


def test_both_sides_cannot_be_the_same():
    with pytest.raises(ValueError, match="head and base are the same implementation"):
        Regression(head="a", base="a")
