"""What times are held against: the add, the copy, the engine's own error, the A/A band, the number of blocks."""

from __future__ import annotations

from collections.abc import Iterable

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.statistics import PROCESS_BAND
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.records.schema import Budget
from reports import figures


def add_and_copy(case: CaseComparison) -> str:
    """The reference times of a case: the same-traffic add, and a copy of its bytes at the rate of a large copy."""
    copy = f", copy {figures.microseconds(case.copy_us)} us" if case.copy_us else ""
    return f"add {figures.microseconds(case.add_us)} us{copy}"


def error_budget(comparison: Comparison) -> str:
    """The engine's own error as a footnote of a table of times; empty where it is unknown."""
    if not comparison.budget or not comparison.timed:
        return ""
    text = budget_sentence(comparison.budget)
    if comparison.run.settings.processes == 1:
        text += f" A single process claims no difference within {figures.band(PROCESS_BAND)}."
    return text


def budget_sentence(budget: Budget) -> str:
    """The errors of a time and a ratio, t0, and the bandwidth of a copy, in a sentence."""
    text = (
        f"The engine's own error, by its self-test: a time ±{figures.two_digits(budget.fixed_us)} us "
        f"±{figures.two_digits(100 * budget.relative)} %, a ratio ±{figures.two_digits(100 * budget.ratio)} %; "
        f"t0 {figures.microseconds(budget.t0_us)} us"
    )
    return text + (f"; a copy moves {figures.gbps(budget.copy_gbps)} GB/s." if budget.copy_gbps else ".")


def blocks(cases: Iterable[CaseComparison]) -> str:
    """How many blocks the cases were timed in, and how many were voided."""
    cases = list(cases)
    counts = [entry.blocks for case in cases for entry in case.ranked]
    if not counts:
        return ""
    text = str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    processes = max(entry.processes for case in cases for entry in case.ranked)
    text += f" in {processes} processes" if processes > 1 else ""
    voided: dict[Reason, int] = {}
    for case in cases:
        for cause, number in case.voided.items():
            voided[cause] = voided.get(cause, 0) + number
    causes = ", ".join(sorted(f"{number} {sentence(cause)}" for cause, number in voided.items() if number))
    return f"{text} (voided: {causes})" if causes else text


def aa_band(case: CaseComparison) -> str:
    """The A/A band of a case, or that nothing is ranked in it."""
    return "nothing ranked" if case.interference else f"A/A band {figures.band(case.aa_band)}"


def aa_bands(cases: Iterable[CaseComparison]) -> str:
    """The smallest and largest A/A band of the cases, and how many have none."""
    cases = [case for case in cases if not case.interference]
    bands = sorted(case.aa_band for case in cases if case.aa_band is not None)
    missing = len(cases) - len(bands)
    if not cases:
        return "nothing is ranked"
    if not bands:
        return "none was measured, so nothing is called faster or slower"
    text, widest = figures.band(bands[0]), figures.band(bands[-1])
    if text != widest:
        text += f" to {widest}"
    return f"{text}; none in {figures.count(missing, 'case')}" if missing else text
