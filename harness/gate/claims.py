"""Judges a claimed speedup of one implementation over another, case by case."""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.analysis.joining import Joined, JoinedCase, band, comparable, impl_is, ratio
from harness.analysis.statistics import IncomparableError, Ratio
from harness.analysis.verdicts import Outcome, Verdict
from harness.cases import NormCase
from harness.gate.limits import Claim
from harness.records.reasons import Reason
from harness.records.schema import RANKED, Status

NOT_TRIED: tuple[Status, ...] = ("missing", "unsupported")


def judge_claim(cases: Mapping[NormCase, JoinedCase], claim: Claim) -> list[Verdict]:
    """A verdict on each case that the claim selects; a claim that selects no measured case is an ERROR.

    A claim `where_measured` leaves out the cases that have no time to compare with, and may have no verdict.
    """
    judged = (_judge_case(case, joined, claim) for case, joined in claim.measured(cases).items())
    verdicts = [verdict for verdict in judged if verdict is not None]
    if verdicts or claim.where_measured:
        return verdicts
    return [Verdict(claim.subject, None, "ERROR", Reason("no_case_fits_claim"))]


def _judge_case(case: NormCase, joined: JoinedCase, claim: Claim) -> Verdict | None:
    mine, measured = joined.get((claim.impl, "impl")), None
    was_tried = mine is not None and mine.status not in NOT_TRIED
    if mine is not None and was_tried and mine.status not in (("ok",) if claim.deterministic else RANKED):
        outcome, reason = "REGRESSED", impl_is(claim.impl, mine)
    elif claim.where_measured and _has_no_time(joined, claim):
        return None
    elif mine is None or not was_tried:
        outcome, reason = "ERROR", impl_is(claim.impl, mine, "not_measured")
    elif missing := joined.incomplete.get(claim.impl):
        outcome, reason = "INCONCLUSIVE", Reason("of_impl", {"impl": claim.impl}, [missing])
    elif claim.over is None:
        outcome, reason = "PASS", Reason("right_and_deterministic" if claim.deterministic else "right")
    else:
        outcome, reason, measured = _judge_speed(mine, joined, claim, claim.over)
    return Verdict(claim.subject, case, outcome, reason, measured)


def _judge_speed(mine: Joined, joined: JoinedCase, claim: Claim, over: str) -> tuple[Outcome, Reason, Ratio | None]:
    try:
        measured = ratio(joined.get((over, "impl")), mine)
    except IncomparableError as error:
        return "ERROR", Reason("no_ratio", parts=[error.reason]), None
    if reason := joined.no_verdict_reason(claim.impl, over):
        return "INCONCLUSIVE", reason, measured
    return *_judge_ratio(claim, measured, band(joined, over)), measured


def _has_no_time(joined: JoinedCase, claim: Claim) -> bool:
    """Whether a case has nothing to compare with, or what is claimed of was not tried or was too fast to be ranked."""
    mine = joined.get((claim.impl, "impl"))
    if claim.over is None:
        return mine is None or mine.status in NOT_TRIED
    try:
        comparable(joined.get((claim.over, "impl")))
    except IncomparableError:
        return True
    return mine is not None and mine.too_short is not None


def _judge_ratio(claim: Claim, ratio: Ratio, aa: float | None) -> tuple[Outcome, Reason]:
    """Pass or fail only where the interval, widened by the A/A band, lies on one side of what is claimed."""
    if aa is None:
        return "INCONCLUSIVE", Reason("no_aa_pair")
    low, high = ratio.low * math.exp(-aa), ratio.high * math.exp(aa)
    fields = {"ratio": ratio.value, "over": claim.over or "", "low": low, "high": high}
    reason = Reason("times_as_fast", fields)
    if low >= claim.at_least:
        return "PASS", reason
    return "REGRESSED" if high < claim.at_least else "INCONCLUSIVE", reason
