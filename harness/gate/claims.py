"""Judges a claimed speedup of one implementation over another, case by case."""

from __future__ import annotations

import math

from harness.cases import NormCase
from harness.gate.limits import Claim
from harness.results.file import Results
from harness.results.joining import JoinedCase, band, by_case, ratio, status_and_reason
from harness.results.schema import RANKED, Budget
from harness.results.statistics import IncomparableError, Ratio
from harness.results.verdicts import Outcome, Verdict


def judge_claim(results: Results, claim: Claim) -> list[Verdict]:
    """A verdict on each case that the claim selects; a claim that selects no measured case is an ERROR."""
    verdicts = [
        _judge_case(case, joined, claim, results.budget)
        for case, joined in by_case(results).items()
        if claim.fits(case) and any(role == "impl" for _, role in joined)
    ]
    return verdicts or [Verdict(claim.subject, None, "ERROR", "no case of these results fits the claim")]


def _judge_case(case: NormCase, joined: JoinedCase, claim: Claim, budget: Budget | None) -> Verdict:
    def verdict(outcome: Outcome, reason: str, measured: Ratio | None = None) -> Verdict:
        return Verdict(claim.subject, case, outcome, reason, measured)

    mine = joined.get((claim.impl, "impl"))
    if mine is None or mine.status in ("missing", "unsupported"):
        return verdict("ERROR", f"{claim.impl} was not measured: {status_and_reason(mine)}")
    if mine.status not in RANKED or (mine.status == "nondeterministic" and claim.deterministic):
        return verdict("REGRESSED", f"{claim.impl} is {status_and_reason(mine)}")
    if claim.over is None:
        return verdict("PASS", "right" + (" and deterministic" if claim.deterministic else ""))
    try:
        measured = ratio(joined.get((claim.over, "impl")), mine, budget)
    except IncomparableError as error:
        return verdict("ERROR", f"no ratio: {error}")
    if reason := joined.against(claim.impl, claim.over):
        return verdict("INCONCLUSIVE", reason, measured)
    return verdict(*_judge_ratio(claim, measured, band(joined, claim.over)), measured)


def _judge_ratio(claim: Claim, ratio: Ratio, aa: float | None) -> tuple[Outcome, str]:
    """Pass or fail only where the interval, widened by the A/A band, lies on one side of what is claimed."""
    if aa is None:
        return "INCONCLUSIVE", "no A/A pair in this case"
    low, high = ratio.low * math.exp(-aa), ratio.high * math.exp(aa)
    reason = f"{ratio.value:.3f} times as fast as {claim.over}, between {low:.3f} and {high:.3f}"
    if low >= claim.at_least:
        return "PASS", reason
    return "REGRESSED" if high < claim.at_least else "INCONCLUSIVE", reason
