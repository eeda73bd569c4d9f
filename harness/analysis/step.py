"""A run in all its contexts, summed up: the speedups of each implementation, and its time over that alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.entries import Entry
from harness.analysis.statistics import geomean
from harness.analysis.summary import Geomean
from harness.cases import Norm
from harness.records.contexts import COLD, HOST


@dataclass(frozen=True)
class StepCell:
    """One implementation in one context: its speedups over the baseline, and its time over that alone.

    Of `host`, which has nothing to be set beside, the time is in us and not over that alone. `waits` is the number of
    cases in which it usually waits for other kernels. These are in neither: they say how long the other kernel was.
    """

    speedup: Geomean | None
    time: float | None
    longest: float | None
    waits: int


@dataclass(frozen=True)
class StepRow:
    """One implementation of one norm, with a cell a context."""

    impl: str
    norm: Norm
    cells: tuple[StepCell, ...]


def every_context(comparison: Comparison) -> tuple[Comparison, ...]:
    """The comparisons of all contexts in which anything was timed, cold first."""
    return comparison, *(context for context in comparison.contexts if context.timed)


def training_step(comparison: Comparison) -> list[StepRow]:
    """A row for each implementation that was timed, norm by norm, best in the cold context first."""
    norms: dict[Norm, None] = dict.fromkeys(case.case.norm for case in comparison.cases)
    rows: list[StepRow] = []
    for norm in norms:
        means = [
            mean for context in every_context(comparison) for mean in context.summary.geomeans if mean.norm == norm
        ]
        for impl in dict.fromkeys(mean.impl for mean in means):
            cells = tuple(_cell(comparison, context, impl, norm) for context in every_context(comparison))
            rows.append(StepRow(impl, norm, cells))
    return rows


def _cell(comparison: Comparison, context: Comparison, impl: str, norm: Norm) -> StepCell:
    alone = {case.case: case.entry(impl) for case in comparison.cases if case.case.norm == norm}
    timed = [(alone.get(case.case), entry) for case, entry in _timed(context.cases, impl, norm)]
    entries = [(before, entry) for before, entry in timed if not entry.usually_waits]
    if context.context == HOST:
        times = [entry.median_us for _, entry in entries if entry.median_us]
    elif context.context == COLD:
        times = []
    else:
        times = [
            entry.median_us / before.median_us
            for before, entry in entries
            if entry.median_us and before and before.median_us
        ]
    means = context.summary.geomeans
    return StepCell(
        speedup=next((mean for mean in means if (mean.impl, mean.norm) == (impl, norm)), None),
        time=geomean(times) if times else None,
        longest=max(times, default=None),
        waits=len(timed) - len(entries),
    )


def _timed(cases: Sequence[CaseComparison], impl: str, norm: Norm) -> list[tuple[CaseComparison, Entry]]:
    entries = [(case, case.entry(impl)) for case in cases if case.case.norm == norm]
    return [(case, entry) for case, entry in entries if entry and entry.standing in ("ranked", "unranked")]
