"""Judges whether one implementation has become slower than another, over all cases of a run together.

Each case is a one-sided test against a margin, delta. p-values are adjusted by Benjamini and Hochberg; the variance
between processes, of which a case has few, is shrunk towards that of the other cases. A loss that is too small to be
found on any case shows in the geometric mean, if most cases have it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.analysis.joining import Joined, JoinedCase, band, impl_is, pairs
from harness.analysis.pairing import speedups
from harness.analysis.statistics import (
    CONFIDENCE,
    FALSE_DISCOVERIES,
    Estimate,
    IncomparableError,
    Ratio,
    across_processes,
    benjamini_hochberg,
    estimate,
    mean_of_logs,
)
from harness.analysis.verdicts import Loss, Outcome, Verdict
from harness.cases import NormCase
from harness.gate.limits import Regression
from harness.gate.variance_shrinkage import shrunk
from harness.records.reasons import Reason
from harness.records.schema import RANKED


@dataclass(frozen=True)
class TestedCase:
    """A case on which both sides can be compared: the ratio, each process's log of it, and delta (a log ratio)."""

    case: NormCase
    ratio: Ratio
    logs: Mapping[int, float]
    delta: float


def judge_regression(cases: Mapping[NormCase, JoinedCase], limit: Regression) -> list[Verdict]:
    """A verdict on each selected case that either side supports, and one on the geometric mean.

    Where there is no such case, nothing was measured: an ERROR.
    """
    selected = [item for item in limit.measured(cases).items() if not _both_refuse(item[1], limit)]
    items = [_tested_or_verdict(case, joined, limit) for case, joined in selected]
    if not items:
        return [Verdict(limit.subject, None, "ERROR", Reason("no_case_fits_regression"))]
    tested = [item for item in items if isinstance(item, TestedCase)]
    losses = iter(_losses(tested))
    verdicts = [
        Verdict(limit.subject, item.case, *_outcome(loss := next(losses)), item.ratio, loss)
        if isinstance(item, TestedCase)
        else item
        for item in items
    ]
    return verdicts + _judge_geomean(limit, tested)


def _both_refuse(joined: JoinedCase, limit: Regression) -> bool:
    """Whether neither side supports the case, so that there is nothing to lose."""
    sides = [joined.get((name, "impl")) for name in limit.names]
    return all(side is not None and side.status == "unsupported" for side in sides)


def _tested_or_verdict(case: NormCase, joined: JoinedCase, limit: Regression) -> Verdict | TestedCase:
    """A case to test, or its verdict where no test can be made."""

    def verdict(outcome: Outcome, reason: Reason, measured: Ratio | None = None) -> Verdict:
        return Verdict(limit.subject, case, outcome, reason, measured)

    head, base = (joined.get((name, "impl")) for name in limit.names)
    without_times = _judge_status(head, base, limit)
    if (missing := joined.incomplete.get(limit.head)) and (without_times is None or without_times[0] == "PASS"):
        return verdict("INCONCLUSIVE", Reason("of_impl", {"impl": limit.head}, [missing]))
    if without_times is not None:
        return verdict(*without_times)
    try:
        processes = pairs(base, head)
        measured = across_processes(speedups(processes))
    except IncomparableError as error:
        return verdict("ERROR", Reason("no_ratio", parts=[error.reason]))
    if reason := joined.no_verdict_reason(*limit.names):
        return verdict("INCONCLUSIVE", reason, measured)
    aa = band(joined, limit.base)
    if aa is None or not math.isfinite(aa):
        return verdict("INCONCLUSIVE", Reason("no_aa_pair_or_few_blocks"), measured)
    logs = {pair.process: pair.median_log for pair in processes}
    return TestedCase(case, measured, logs, max(math.log1p(limit.minimum_effect), aa))


def _judge_status(head: Joined | None, base: Joined | None, limit: Regression) -> tuple[Outcome, Reason] | None:
    """The verdict from the statuses alone (failed, not deterministic), before any time; None where both passed."""
    for name, side in zip(limit.names, (head, base), strict=True):
        if side is None or side.status == "missing":
            return "ERROR", impl_is(name, side, "not_measured")
    assert head is not None
    assert base is not None
    if head.status not in RANKED:
        return "REGRESSED", impl_is(limit.head, head)
    if head.status == "nondeterministic" and base.status == "ok" and not limit.allow_nondeterministic:
        reasons = [impl_is(limit.head, head), Reason("is_deterministic", {"impl": limit.base})]
        return "REGRESSED", Reason("together", parts=reasons)
    if base.status not in RANKED:
        reasons = [impl_is(limit.base, base), Reason("right_no_time", {"impl": limit.head})]
        return "PASS", Reason("together", parts=reasons)
    return None


def _losses(tested: Sequence[TestedCase]) -> list[Loss]:
    """The test of each case: variances shrunk where there are several processes, p-values adjusted."""
    estimates = [estimate(case.ratio) for case in tested]
    several = [n for n, case in enumerate(tested) if case.ratio.processes > 1]  # one has its scatter from PROCESS_BAND
    for n, each in zip(several, shrunk([estimates[n] for n in several]), strict=True):
        estimates[n] = each
    losses = [_loss(each, case.delta) for each, case in zip(estimates, tested, strict=True)]
    adjusted = benjamini_hochberg([loss.p for loss in losses])
    return [replace(loss, adjusted=p) for loss, p in zip(losses, adjusted, strict=True)]


def _outcome(loss: Loss) -> tuple[Outcome, Reason]:
    if loss.adjusted <= FALSE_DISCOVERIES:
        return "REGRESSED", Reason("slower")
    if loss.low >= math.exp(-loss.delta):
        return "PASS", Reason("not_slower")
    return "INCONCLUSIVE", Reason("maybe_slower")


def _judge_geomean(limit: Regression, tested: Sequence[TestedCase]) -> list[Verdict]:
    """Test the geometric mean for a loss on most cases that is too small to be found on a single one.

    A mean without such a loss passes even if its interval is wide: cases that gained unequally make it wide. A loss on
    a single case is found by the test of that case.
    """
    if len(tested) < 2:
        return []
    shared = [process for process in tested[0].logs if all(process in case.logs for case in tested)]
    if not shared:
        reason = Reason("no_process_for_mean")
        return [Verdict(limit.subject, None, "INCONCLUSIVE", reason)]
    mean = mean_of_logs([[case.logs[process] for process in shared] for case in tested])
    loss = _loss(mean, math.log1p(limit.geomean_effect), len(tested))
    if loss.p <= 1 - CONFIDENCE:
        outcome, reason = "REGRESSED", Reason("slower_on_the_whole")
    elif math.log(loss.speedup) >= -loss.delta:
        outcome, reason = "PASS", Reason("not_slower_on_the_whole")
    else:
        outcome, reason = "INCONCLUSIVE", Reason("maybe_slower_on_the_whole")
    return [Verdict(limit.subject, None, outcome, reason, loss=loss)]


def _loss(estimate: Estimate, delta: float, cases: int = 1) -> Loss:
    low, high = estimate.bounds()
    p = estimate.p_below(-delta)
    return Loss(math.exp(estimate.value), math.exp(low), math.exp(high), delta, p, p, cases)
