import math
from dataclasses import replace

import pytest

from harness.gate import failures
from harness.gate.failures import cases_behind, names_behind
from harness.gate.judge import judge
from harness.gate.limits import Claim, Limits, Regression
from tests.results_factory import CASE, LAYER, gateable, in_processes, row, twin
from tests.wording import worded

HEAD, BASE = "mine@head", "mine@base"
CASES = [replace(CASE, rows=1024 * 2**power) for power in range(4)]
FIVE = (1.0, 1.01, 0.99, 1.005, 0.995)
ASKED = Regression(head=HEAD, base=BASE)
SCATTER = {(HEAD, "impl", process): scale for process, scale in enumerate((0.985, 1.015, 0.99, 1.0, 1.01))}


def pair(case, slower=0.0, head=(), twins=True):
    """Base, its twin, and a head that is slower by a log ratio."""
    rows = [row(BASE, 50.0, case), row(HEAD, 50.0 * math.exp(slower), case, **dict(head))]
    return [*rows, twin(BASE, 50.0, case, shift=0)] if twins else rows


def run(*losses, cases=CASES, bias=(), **more):
    """A run of as many cases as there are losses."""
    rows = [each for case, slower in zip(cases, losses, strict=False) for each in pair(case, slower, **more)]
    return gateable(*in_processes(*rows, scales=FIVE, bias=bias))


def limits_of(limits):
    claims, regressions = ([limit for limit in limits if isinstance(limit, kind)] for kind in (Claim, Regression))
    return Limits(claim=claims, regression=regressions)


def judged(measured, *limits):
    return judge(measured, limits_of(limits or (ASKED,)))


def confirmed(verdicts, again, *limits):
    return failures.confirmed(verdicts, limits_of(limits or (ASKED,)), again)


def outcomes(verdicts):
    return [verdict.outcome for verdict in verdicts]


def test_a_failure_that_both_runs_show_has_regressed():
    (first,) = judged(run(0.05))
    (found,) = confirmed([first], run(0.04))
    assert (found.outcome, found.loss, found.ratio) == ("REGRESSED", first.loss, first.ratio)
    assert worded(found.reason) == "slower by more than delta; confirmed: 0.961 [0.961, 0.961]"


@pytest.mark.parametrize("slower", [0.0, 0.008, -0.05])
def test_unconfirmed_failure_is_inconclusive(slower):
    """A failure that the second run does not show is inconclusive; it never passes."""
    (first,) = judged(run(0.05))
    (found,) = confirmed([first], run(slower))
    assert (found.outcome, found.loss) == ("INCONCLUSIVE", first.loss)
    figure = f"{math.exp(-slower):.3f}"
    assert worded(found.reason) == f"not confirmed: 0.951 [0.951, 0.951], then {figure} [{figure}, {figure}]"


def test_a_second_run_that_cannot_tell_confirms_nothing():
    (first,) = judged(run(0.05))
    (found,) = confirmed([first], run(0.015, bias=SCATTER))
    assert found.outcome == "INCONCLUSIVE"
    (found,) = confirmed([first], run(0.05, twins=False))
    assert found.outcome == "INCONCLUSIVE"
    assert worded(found.reason).endswith(", then no A/A pair in this case, or too few blocks for one")
    (found,) = confirmed([first], gateable(*pair(LAYER)))
    assert worded(found.reason) == "not confirmed: 0.951 [0.951, 0.951], then not measured"


def test_other_failure_in_second_run_is_a_regression():
    (first,) = judged(run(0.05))
    (found,) = confirmed([first], run(0.0, head={"status": "wrong", "reason": "dx is off"}))
    assert found.outcome == "REGRESSED"
    assert worded(found.reason) == "slower by more than delta; measured again: mine@head is wrong: dx is off"


@pytest.mark.parametrize("status", ["wrong", "crashed", "nondeterministic", "unsupported"])
def test_a_status_is_no_failure_of_speed_and_stays(status):
    verdicts = judged(run(0.05, head={"status": status, "reason": "because"}))
    assert outcomes(verdicts) == ["REGRESSED"]
    assert not verdicts[0].for_speed
    assert cases_behind(verdicts) == names_behind(verdicts) == []
    assert confirmed(verdicts, run(0.0)) == verdicts


def test_passed_cases_are_not_confirmed():
    """A case that did not fail is not measured again, and its verdict stays."""
    unclear, passed = {(HEAD, "impl", process): scale for process, scale in enumerate((1.0, 1.05, 1.0))}, run(0.0, 0.0)
    assert cases_behind(judged(passed)) == []
    assert cases_behind(judged(run(0.0, bias=unclear))) == []
    first = judged(run(0.05, 0.0))
    assert outcomes(first) == ["REGRESSED", "PASS", "INCONCLUSIVE"]
    assert cases_behind(first) == [CASES[0]]
    assert names_behind(first) == [HEAD, BASE]
    found = confirmed(first, run(0.0))
    assert outcomes(found) == ["INCONCLUSIVE", "PASS", "INCONCLUSIVE"]
    assert found[1:] == first[1:]


def test_only_the_cases_that_failed_are_looked_at_together():
    """What is no discovery among four cases is one where a single case was asked again."""
    first = judged(run(0.05, 0.0, 0.0, 0.0))
    again = run(0.0245, 0.0, 0.0, 0.0, bias=SCATTER)
    assert outcomes(judged(again))[0] == "INCONCLUSIVE"
    assert outcomes(confirmed(first, again))[0] == "REGRESSED"


def test_a_geometric_mean_is_confirmed_on_all_its_cases():
    first = judged(run(0.008, 0.008, 0.008, 0.008))
    assert outcomes(first) == ["PASS"] * 4 + ["REGRESSED"]
    assert cases_behind(first) == CASES
    again = confirmed(first, run(0.008, 0.008, 0.008, 0.007))
    assert outcomes(again) == ["PASS"] * 4 + ["REGRESSED"]
    assert worded(again[-1].reason) == "slower by more than delta on the whole; confirmed: 0.992 [0.992, 0.993]"
    gone = confirmed(first, run(0.0, 0.0, 0.0, 0.0))
    assert outcomes(gone) == ["PASS"] * 4 + ["INCONCLUSIVE"]
    assert worded(gone[-1].reason).startswith("not confirmed: 0.992 [0.992, 0.992], then 1.000 [")
    assert worded(confirmed(first, run(0.008))[-1].reason).endswith(", then not measured")


def test_a_claim_is_confirmed_like_a_regression():
    claim = Claim(impl=HEAD, over=BASE, at_least=1.2)
    first = judged(run(0.0, 0.0), claim)
    assert outcomes(first) == ["REGRESSED"] * 2
    found = confirmed(first, run(0.0, -0.3), claim)
    assert outcomes(found) == ["REGRESSED", "INCONCLUSIVE"]
    assert worded(found[0].reason).count(f"1.000 times as fast as {BASE}, between ") == 2
    assert "; confirmed: 1.000 times" in worded(found[0].reason)
    assert worded(found[1].reason).startswith(f"not confirmed: 1.000 times as fast as {BASE}")
    assert f", then 1.350 times as fast as {BASE}, between " in worded(found[1].reason)


def test_limits_are_confirmed_each_by_its_own_names():
    other = Regression(head=BASE, base=HEAD)
    first = judged(run(0.05, -0.05), ASKED, other)
    failed = [(v.subject.number, v.subject.words, v.case) for v in first if v.for_speed]
    assert failed == [(0, ASKED.subject.words, CASES[0]), (1, other.subject.words, CASES[1])]
    assert cases_behind(first) == CASES[:2]
    found = confirmed(first, run(0.05, 0.05), ASKED, other)
    assert [v.outcome for v in found if v.case] == ["REGRESSED", "PASS", "PASS", "INCONCLUSIVE"]
