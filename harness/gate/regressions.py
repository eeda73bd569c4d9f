"""Whether one implementation has become slower than another, over all cases of a run together.

Each case is a test of its own, and many tests find something by chance: their p-values are adjusted for each other.
How much processes scatter on a case, which few of them cannot show, is found with the help of the other cases. What is
too small to be found on any case shows in the geometric mean, if most cases lost it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.cases import NormCase
from harness.gate.claims import why
from harness.gate.limits import Regression
from harness.gate.variance_shrinkage import tempered
from harness.gate.verdicts import Loss, Outcome, Verdict
from harness.results.file import Results
from harness.results.joining import Joined, JoinedCase, band, by_case, logs_by_process, ratio
from harness.results.schema import RANKED, Budget
from harness.results.statistics import (
    CONFIDENCE,
    FALSE_DISCOVERIES,
    Estimate,
    IncomparableError,
    Ratio,
    adjusted,
    estimate,
    mean_of_logs,
)


@dataclass(frozen=True)
class Cell:
    """One case that both sides can be compared on, before its test is looked at beside those of the other cases."""

    case: NormCase
    ratio: Ratio
    logs: Mapping[int, float]  # of each process
    known: Estimate  # of the log of the ratio
    delta: float


def judge_regression(results: Results, asked: Regression) -> list[Verdict]:
    """A verdict on each case that it fits and that either side supports, and one on the geometric mean.

    Where there is no such case, nothing was measured: an ERROR.
    """
    cases = {
        case: of
        for case, of in by_case(results).items()
        if asked.fits(case) and any(role == "impl" for _, role in of) and not _neither(of, asked)
    }
    found = [_judge_case(of, asked, case, results.budget) for case, of in cases.items()]
    if not found:
        return [Verdict(asked, None, "ERROR", "no case of these results fits, or neither side supports any")]
    cells = [each for each in found if isinstance(each, Cell)]
    losses = iter(_losses(cells))
    verdicts = [_judge_cell(asked, each, next(losses)) if isinstance(each, Cell) else each for each in found]
    return verdicts + _judge_geomean(asked, cells)


def _neither(found: JoinedCase, asked: Regression) -> bool:
    """Whether both sides refuse the case, so that there is nothing to lose."""
    sides = [found.get((name, "impl")) for name in asked.names]
    return all(side is not None and side.status == "unsupported" for side in sides)


def _judge_case(found: JoinedCase, asked: Regression, case: NormCase, budget: Budget | None) -> Verdict | Cell:
    head, base = (found.get((name, "impl")) for name in asked.names)
    if (without := _without_times(head, base, asked)) is not None:
        return Verdict(asked, case, *without)
    try:
        measured = ratio(base, head, budget)
    except IncomparableError as error:
        return Verdict(asked, case, "ERROR", f"no ratio: {error}")
    aa = band(found, asked.base)
    if aa is None or not math.isfinite(aa):
        return Verdict(asked, case, "INCONCLUSIVE", "no A/A pair in this case, or too few blocks for one", measured)
    delta = max(math.log1p(asked.minimum_effect), aa)
    assert head is not None
    assert base is not None
    return Cell(case, measured, logs_by_process(base, head), estimate(measured), delta)


def _without_times(head: Joined | None, base: Joined | None, asked: Regression) -> tuple[Outcome, str] | None:
    """What is clear before any time is looked at: right first, then the same bits again."""
    for name, side in zip(asked.names, (head, base), strict=True):
        if side is None or side.status == "missing":
            return "ERROR", f"{name} was not measured: {why(side)}"
    assert head is not None
    assert base is not None
    if head.status not in RANKED:
        return "REGRESSED", f"{asked.head} is {why(head)}"
    if head.status == "nondeterministic" and base.status == "ok" and not asked.allow_nondeterministic:
        return "REGRESSED", f"{asked.head} is {why(head)}; {asked.base} is deterministic"
    if base.status not in RANKED:
        return "PASS", f"{asked.base} is {why(base)}; {asked.head} is right, and there is no time to keep"
    return None


def _losses(cells: Sequence[Cell]) -> list[Loss]:
    """The test of each cell, with what all of them together tell of the scatter between processes and of chance."""
    several = [cell.ratio.processes > 1 for cell in cells]  # a single process has its scatter from elsewhere
    learnt = iter(tempered([cell.known for cell, of_several in zip(cells, several, strict=True) if of_several]))
    known = [next(learnt) if of_several else cell.known for cell, of_several in zip(cells, several, strict=True)]
    losses = [_loss(each, cell.delta) for each, cell in zip(known, cells, strict=True)]
    together = adjusted([loss.p for loss in losses])
    return [replace(loss, adjusted=p) for loss, p in zip(losses, together, strict=True)]


def _judge_cell(asked: Regression, cell: Cell, loss: Loss) -> Verdict:
    if loss.adjusted <= FALSE_DISCOVERIES:
        return Verdict(asked, cell.case, "REGRESSED", "slower by more than delta", cell.ratio, loss)
    if loss.low >= math.exp(-loss.delta):
        return Verdict(asked, cell.case, "PASS", "not slower by more than delta", cell.ratio, loss)
    return Verdict(asked, cell.case, "INCONCLUSIVE", "may be slower by more than delta", cell.ratio, loss)


def _judge_geomean(asked: Regression, cells: Sequence[Cell]) -> list[Verdict]:
    """A loss on most cases that is too small to be found on any of them.

    A mean that reads no such loss passes however wide its interval is: cells that gained unequally make it wide, and
    what a single one lost is that cell's to show.
    """
    if len(cells) < 2:
        return []
    shared = [process for process in cells[0].logs if all(process in cell.logs for cell in cells)]
    if not shared:
        return [Verdict(asked, None, "INCONCLUSIVE", "no process measured all cases, so there is no mean over them")]
    known = mean_of_logs([[cell.logs[process] for process in shared] for cell in cells])
    found = _loss(known, math.log1p(asked.geomean_effect), len(cells))
    if found.p <= 1 - CONFIDENCE:
        return [Verdict(asked, None, "REGRESSED", "slower by more than delta on the whole", loss=found)]
    if math.log(found.speedup) >= -found.delta:
        return [Verdict(asked, None, "PASS", "not slower by more than delta on the whole", loss=found)]
    return [Verdict(asked, None, "INCONCLUSIVE", "may be slower by more than delta on the whole", loss=found)]


def _loss(known: Estimate, delta: float, cells: int = 1) -> Loss:
    low, high = known.bounds()
    p = known.p_below(-delta)
    return Loss(math.exp(known.value), math.exp(low), math.exp(high), delta, p, p, cells)
