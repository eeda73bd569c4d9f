"""The verdicts of a gate as text: what did not pass first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tabulate import tabulate

from harness.gate.limits import Claim, Regression
from harness.gate.verdicts import GRAVEST_FIRST, Loss, Verdict
from harness.results.statistics import FALSE_DISCOVERIES
from reports import figures

MOST_ROWS = 40
CLAIM_HEADS = ["verdict", "case", "claim", "because"]
LOSS_HEADS = ["verdict", "case", "head over base [90 %]", "delta", "adjusted p", "because"]


def render(verdicts: Sequence[Verdict]) -> str:
    """A table of the claims, one of each regression, each at most MOST_ROWS long, and the count of each verdict."""
    claims = [(v, [v.outcome, _case(v), str(v.claim), v.reason]) for v in verdicts if isinstance(v.claim, Claim)]
    parts = [_table(CLAIM_HEADS, claims)] if claims else []
    regressions = list(dict.fromkeys(v.claim for v in verdicts if isinstance(v.claim, Regression)))
    for asked in regressions:
        of = [(v, [v.outcome, _case(v), *_figures(v.loss), v.reason]) for v in verdicts if v.claim == asked]
        parts.append(f"{_about(asked)}\n\n{_table(LOSS_HEADS, of)}")
    counted = Counter(verdict.outcome for verdict in verdicts)
    counts = ", ".join(f"{counted[outcome]} {outcome}" for outcome in GRAVEST_FIRST if counted[outcome])
    return "\n\n".join(parts) + f"\n{counts}\n"


def _about(asked: Regression) -> str:
    """What is tested, in words: the table has no room for it."""
    return (
        f"{asked.head} over {asked.base}, times as fast: REGRESSED where slower by more than delta, "
        f"at a false discovery rate of {figures.percent(100 * FALSE_DISCOVERIES, 0)} %"
    )


def _table(heads: list[str], rows: Sequence[tuple[Verdict, list[str]]]) -> str:
    """The gravest first, and among equals what is not of one case, so that it is not cut off."""
    by_weight = sorted(rows, key=lambda row: (GRAVEST_FIRST.index(row[0].outcome), row[0].case is not None))
    ordered = [cells for _, cells in by_weight]
    text = tabulate(ordered[:MOST_ROWS], heads, "simple", disable_numparse=True)
    return f"{text}\n... {len(ordered) - MOST_ROWS} more" if len(ordered) > MOST_ROWS else text


def _case(verdict: Verdict) -> str:
    if verdict.case is not None:
        return verdict.case.key
    return f"geomean of {verdict.loss.cells} cases" if verdict.loss else ""


def _figures(loss: Loss | None) -> list[str]:
    if loss is None:
        return [figures.NOTHING] * 3
    p = "< 0.0001" if loss.adjusted < 0.0001 else f"{loss.adjusted:.4f}"
    return [str(loss), f"{figures.spread(math.expm1(loss.delta))} %", p]
