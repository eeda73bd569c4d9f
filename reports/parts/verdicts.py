"""The verdicts of a gate as text, failures first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tabulate import tabulate

from harness.analysis.statistics import FALSE_DISCOVERIES
from harness.analysis.verdicts import GRAVEST_OUTCOME_FIRST, Loss, Subject, Verdict
from harness.records.reason_texts import sentence
from reports import figures

MOST_ROWS = 40
CLAIM_HEADS = ["verdict", "case", "claim", "because"]
LOSS_HEADS = ["verdict", "case", "head over base [90 %]", "delta", "adjusted p", "because"]


def render(verdicts: Sequence[Verdict]) -> str:
    """A table of the claims, one of each regression, each at most MOST_ROWS long, and the count of each verdict."""
    claims = [
        (v, [v.outcome, _case(v), v.subject.words, sentence(v.reason)]) for v in verdicts if v.subject.kind == "claim"
    ]
    parts = [_table(CLAIM_HEADS, claims)] if claims else []
    for regression in dict.fromkeys(v.subject for v in verdicts if v.subject.kind == "regression"):
        losses = [
            (v, [v.outcome, _case(v), *_figures(v.loss), sentence(v.reason)])
            for v in verdicts
            if v.subject == regression
        ]
        parts.append(f"{_about(regression)}\n\n{_table(LOSS_HEADS, losses)}")
    counted = Counter(verdict.outcome for verdict in verdicts)
    counts = ", ".join(f"{counted[outcome]} {outcome}" for outcome in GRAVEST_OUTCOME_FIRST if counted[outcome])
    return "\n\n".join(parts) + f"\n{counts}\n"


def _about(regression: Subject) -> str:
    """What is tested, in words: the table has no room for it."""
    head, base = regression.names
    return (
        f"{head} over {base}, times as fast{regression.where}: REGRESSED where slower by more than delta, "
        f"at a false discovery rate of {figures.percent(100 * FALSE_DISCOVERIES, 0)} %"
    )


def _table(heads: list[str], rows: Sequence[tuple[Verdict, list[str]]]) -> str:
    """The gravest first; among equals the geometric means come before single cases, so that they are not cut off."""
    by_weight = sorted(rows, key=lambda row: (GRAVEST_OUTCOME_FIRST.index(row[0].outcome), row[0].case is not None))
    ordered = [cells for _, cells in by_weight]
    text = tabulate(ordered[:MOST_ROWS], heads, "simple", disable_numparse=True)
    return f"{text}\n... {len(ordered) - MOST_ROWS} more" if len(ordered) > MOST_ROWS else text


def _case(verdict: Verdict) -> str:
    if verdict.case is not None:
        return verdict.case.key
    return f"geomean of {verdict.loss.cases} cases" if verdict.loss else ""


def _figures(loss: Loss | None) -> list[str]:
    if loss is None:
        return [figures.NOTHING] * 3
    p = "< 0.0001" if loss.adjusted < 0.0001 else f"{loss.adjusted:.4f}"
    return [figures.with_interval(loss.speedup, loss.low, loss.high), f"{figures.spread(math.expm1(loss.delta))} %", p]
