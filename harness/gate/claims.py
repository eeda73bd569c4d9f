"""Whether one implementation is as much faster than another as is claimed, case by case."""

from __future__ import annotations

import math

from harness.cases import NormCase
from harness.gate.limits import Claim
from harness.gate.verdicts import Verdict
from harness.results.file import Results
from harness.results.joining import Joined, JoinedCase, band, by_case, ratio
from harness.results.schema import RANKED, Budget
from harness.results.statistics import IncomparableError, Ratio


def judge_claim(results: Results, claim: Claim) -> list[Verdict]:
    """A verdict on each case that the claim fits; one that fits nothing measured is an ERROR."""
    cases = {
        case: of for case, of in by_case(results).items() if claim.fits(case) and any(role == "impl" for _, role in of)
    }
    if not cases:
        return [Verdict(claim, None, "ERROR", "no case of these results fits the claim")]
    return [_judge_case(of, claim, case, results.budget) for case, of in cases.items()]


def why(joined: Joined | None) -> str:
    """The status of a result and the reason for it."""
    if joined is None:
        return "absent"
    return f"{joined.status}: {joined.reason}" if joined.reason else joined.status


def _judge_case(found: JoinedCase, claim: Claim, case: NormCase, budget: Budget | None) -> Verdict:
    mine = found.get((claim.impl, "impl"))
    if mine is None or mine.status in ("missing", "unsupported"):
        return Verdict(claim, case, "ERROR", f"{claim.impl} was not measured: {why(mine)}")
    if mine.status not in RANKED or (mine.status == "nondeterministic" and claim.deterministic):
        return Verdict(claim, case, "REGRESSED", f"{claim.impl} is {why(mine)}")
    if claim.over is None:
        return Verdict(claim, case, "PASS", "right" + (" and deterministic" if claim.deterministic else ""))
    try:
        measured = ratio(found.get((claim.over, "impl")), mine, budget)
    except IncomparableError as error:
        return Verdict(claim, case, "ERROR", f"no ratio: {error}")
    return _judge_ratio(claim, case, measured, band(found, claim.over))


def _judge_ratio(claim: Claim, case: NormCase, ratio: Ratio, aa: float | None) -> Verdict:
    """Pass or fail only where the interval, widened by the A/A band, leaves no doubt: as a verdict is reached."""
    if aa is None:
        return Verdict(claim, case, "INCONCLUSIVE", "no A/A pair in this case", ratio)
    low, high = ratio.low * math.exp(-aa), ratio.high * math.exp(aa)
    words = f"{ratio.value:.3f} times as fast as {claim.over}, between {low:.3f} and {high:.3f}"
    if low >= claim.at_least:
        return Verdict(claim, case, "PASS", words, ratio)
    return Verdict(claim, case, "REGRESSED" if high < claim.at_least else "INCONCLUSIVE", words, ratio)
