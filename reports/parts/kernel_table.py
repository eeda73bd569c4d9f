"""Where the time goes: the kernels of every backward, their gaps, and whether events and the profiler agree."""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.comparison import Comparison
from harness.analysis.kernel_spans import agrees, disagreement_us
from harness.records.schema import Budget
from reports import figures
from reports.kernel_names import display_names
from reports.labels import entry_label
from reports.markdown_writer import escape, paragraphs, write_table
from reports.parts import conditions
from reports.table import left, table

DISAGREE = " (!)"
FIGURES = ("sum", "union", "gaps", "lead", "span", "events", "difference")
HOW_TO_READ = (
    "Kernels in launch order, each with its median us by the profiler, and by events of its own where it has them; "
    "sum: all of them; union: overlap counted once; gaps: span less union; lead: from the end of what ran before to "
    "the first begin; span: first begin to last end; events: what events around the same runs read; difference: events "
    "less lead, span and what events alone cost around one kernel, by the self-test. "
    f"{DISAGREE.strip()}: further apart than 1 us and 2 %."
)


def render(comparison: Comparison) -> str:
    """A table for each case, and in how many entries events and the profiler agree."""
    parts = [conditions.heading("Kernels", comparison.run), HOW_TO_READ]
    for case in comparison.cases:
        kernels = case_table(case, comparison.budget)
        parts += [f"## {case.case.key}", kernels or "No kernels are known."]
    parts += [escape(agreement(comparison)), conditions.error_budget(comparison)]
    return paragraphs(parts)


def case_table(case: CaseComparison, budget: Budget | None) -> str:
    """The table of one case; columns that hold nothing are left out, and it is empty where no kernels are known."""
    headings = [*left("implementation", "kernels, us"), *FIGURES]
    return write_table(table(headings, [_row(entry, budget) for entry in _profiled(case)]).used())


def agreement(comparison: Comparison) -> str:
    """How often events and the profiler agree, and where they do least; empty where neither can be told."""
    differences = [
        (difference, agrees(entry.kernel_totals, comparison.budget), case.case.key, entry.impl)
        for case in comparison.cases
        for entry in _profiled(case)
        if (difference := disagreement_us(entry.kernel_totals, comparison.budget)) is not None
    ]
    if not differences:
        return ""
    largest, _, key, impl = max(differences, key=lambda item: abs(item[0]))
    agreeing = sum(bool(item[1]) for item in differences)
    return (
        f"Events and the profiler agree within 1 us or 2 % in {agreeing} of {len(differences)} entries; "
        f"the largest disagreement is {figures.signed(largest)} us ({impl}, {key})."
    )


def _profiled(case: CaseComparison) -> Sequence[Entry]:
    return [entry for entry in case.of("ranked", "unranked", "verified") if entry.kernels]


def _row(entry: Entry, budget: Budget | None) -> list[str]:
    totals = entry.kernel_totals
    if totals is None:
        return [entry_label(entry), _kernels(entry), *[figures.NOTHING] * len(FIGURES)]
    mark = DISAGREE if agrees(totals, budget) is False else ""
    gaps_us = totals.span_us - totals.union_us
    times = [totals.sum_us, totals.union_us, gaps_us, totals.lead_us or None, totals.span_us, totals.event_us]
    difference = figures.signed(disagreement_us(totals, budget)) + mark
    return [entry_label(entry), _kernels(entry), *(figures.microseconds(time) for time in times), difference]


def _kernels(entry: Entry) -> str:
    kernels = entry.kernels or ()
    names = display_names([kernel.name for kernel in kernels])
    return " + ".join(
        f"`{name}` {figures.microseconds(kernel.median_us)}"
        + (f" (events {figures.microseconds(kernel.event_us)})" if kernel.event_us is not None else "")
        for name, kernel in zip(names, kernels, strict=True)
    )
