"""What norm backwards cost in a training step: each implementation in every context, and the sums of each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.comparison import Comparison
from harness.analysis.step import Spender, StepCell, every_context, spending, training_step
from harness.grouping import grouped
from harness.records.contexts import BESIDE, HOST, MEANINGS, WAITS
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason, kind
from harness.records.schema import RANKED
from reports import figures
from reports.labels import entry_label, spender_label
from reports.parts import answers
from reports.table import Cell, Heading, Section, Table, left, table

TITLE = "In a training step"
MODELS = "What a training step of these models spends in norm backwards"
ALONE = (
    "The same as times: how many times as long as alone, the geometric mean and the longest of a case, both without "
    f"cases in which it waits; {HOST} is in us. A quotient of medians of different blocks, without an interval."
)
ABOUT_MODELS = (
    "ms a step: the time of each norm's backward, times how often a step calls it; harness/cases/models.py has the "
    "calls and their assumptions. + torch: where the implementation lacks a variant, its plain backward with torch's "
    "elementwise operators around it. ±: some norms take less than ten times t0, and each may be off by t0. A model of "
    "which any norm failed, or may not be compared for another reason, is left open."
)


def section(comparison: Comparison) -> Section | None:
    """The tables of speedups and times with their legends; None where the run has only the context cold."""
    if not comparison.contexts:
        return None
    table_of_speedups = speedups(comparison)
    parts = ()
    if table_of_speedups.rows:
        parts = (_legend(comparison), table_of_speedups, " ".join(leads(comparison)), ALONE, times(comparison))
    parts = (*parts, *waiting(comparison), *not_timed(comparison))
    return Section(TITLE, parts) if parts else None


def speedups(comparison: Comparison, impl: str | None = None) -> Table:
    """A row for each implementation, or only `impl`, and a column for each context: the geometric mean speedup.

    The smallest speedup stands in brackets.
    """

    def cell(step_cell: StepCell) -> Cell:
        mean = step_cell.speedup
        if mean is None:
            return _and_waits(step_cell)
        partly = f" in {mean.cases} of {mean.total}" if mean.cases < mean.total else ""
        text = f"{figures.plain_ratio(mean.value)} ({figures.plain_ratio(mean.smallest)}){partly}"
        return _and_waits(step_cell, text, mean.value)

    headings = [*left("impl", "norm"), *(context.context for context in every_context(comparison))]
    rows = [row for row in training_step(comparison) if comparison.contexts and impl in (None, row.impl)]
    return table(headings, [[row.impl, row.norm, *map(cell, row.cells)] for row in rows])


def times(comparison: Comparison) -> Table:
    """A row for each implementation, and a column for each context besides cold: the time over that alone."""

    def cell(step_cell: StepCell, context: str) -> Cell:
        if step_cell.time is None:
            return _and_waits(step_cell)
        text = figures.microseconds if context == HOST else figures.plain_ratio
        return _and_waits(step_cell, f"{text(step_cell.time)} ({text(step_cell.longest)})", step_cell.time)

    contexts = [context.context for context in every_context(comparison)[1:]]
    headings = [*left("impl", "norm"), *(f"{name} us" if name == HOST else name for name in contexts)]
    rows = [[row.impl, row.norm, *map(cell, row.cells[1:], contexts)] for row in training_step(comparison)]
    return table(headings, rows)


def _and_waits(cell: StepCell, text: str = "", value: float | None = None) -> Cell:
    """A text, and in how many cases the implementation waits for the kernel beside, which the text leaves out."""
    waits = f"waits in {cell.waits}" if cell.waits else ""
    return Cell(", ".join(filter(None, (text, waits))) or figures.NOTHING, value)


def of_case(comparison: Comparison, case: CaseComparison) -> Table:
    """The times of one case: a row for each implementation, a column for each context, with speedup and verdict."""
    contexts = every_context(comparison)[1:]
    same_case = [next((other for other in context.cases if other.case == case.case), None) for context in contexts]
    rows = [
        [entry_label(entry), *(_time(in_context, entry.impl) for in_context in same_case)]
        for entry in case.of("ranked", "unranked")
    ]
    return table([*left("impl"), *(Heading(context.context) for context in contexts)], rows)


def leads(comparison: Comparison, impl: str | None = None) -> list[str]:
    """A sentence for each context: in how many cases `impl`, or the one that wins most, is fastest."""
    contexts = [context for context in every_context(comparison) if context.summary.wins]
    return [f"{context.context}: {answers.fastest(context, impl)[0]}" for context in contexts]


def waiting(comparison: Comparison) -> list[str]:
    """For each context a sentence on what usually waits for the other kernel, and one on what sometimes does."""
    lines: list[str] = []
    for context in comparison.contexts:
        entries = [entry for case in context.cases for entry in case.entries]
        if waits := Counter(entry.impl for entry in entries if entry.usually_waits):
            lines.append(
                f"{context.context}: {WAITS}, and takes as long as the one beside: {_impls_with_counts(waits)}."
            )
        if sometimes := _sometimes_waiting(entries):
            lines.append(f"{context.context}: fewer than half of the samples waited for other kernels: {sometimes}.")
    return lines


def not_timed(comparison: Comparison) -> list[str]:
    """A sentence for each reason why an implementation that ranks alone does not rank in another context."""
    reasons: list[tuple[tuple[str, object], tuple[str, Reason]]] = []
    entries_alone = {(case.case, entry.impl): entry for case in comparison.cases for entry in case.entries}
    for context in comparison.contexts:
        for case in context.cases:
            for entry in case.of("verified", "failed", "absent", "unranked"):
                alone = entries_alone.get((case.case, entry.impl))
                if alone and alone.median_us is not None and alone.standing != entry.standing:
                    parts = [entry.reason] if entry.reason else []
                    failed = entry.status not in RANKED or not parts
                    reason = Reason("status", {"status": entry.status}, parts) if failed else parts[0]
                    reasons.append(((context.context, kind(reason)), (entry.impl, reason)))
    contexts: dict[tuple[str, str], list[str]] = {}
    for (context, _), found in grouped(reasons).items():
        impls, reason = Counter(impl for impl, _ in found), sentence(*(reason for _, reason in found))
        contexts.setdefault((_impls_with_counts(impls), figures.one_line(reason)), []).append(context)
    return [f"Not ranked in {', '.join(names)}: {impls} ({reason})." for (impls, reason), names in contexts.items()]


def _impls_with_counts(impls: Counter[str]) -> str:
    return ", ".join(f"{impl} in {figures.count(number, 'case')}" for impl, number in impls.items())


def _sometimes_waiting(entries: Sequence[Entry]) -> str:
    """The implementations of which some samples waited but fewer than half, with how many of how many samples."""
    waiting = grouped((entry.impl, entry.waiting) for entry in entries if entry.waiting and not entry.waiting.usual)
    return ", ".join(
        f"{impl} in {figures.count(len(cases), 'case')} ({sum(case.waited for case in cases)} of "
        f"{figures.count(sum(case.samples for case in cases), 'sample')})"
        for impl, cases in waiting.items()
    )


def _time(case: CaseComparison | None, impl: str) -> Cell:
    entry = case.entry(impl) if case else None
    if entry is None or entry.median_us is None:
        return Cell(entry.status if entry and entry.standing in ("failed", "absent") else figures.NOTHING)
    remarks = [figures.ratio(entry.speedup) if entry.speedup else "", entry.verdict or ""]
    remarks.append("waits" if entry.usually_waits else "" if entry.standing == "ranked" else "not ranked")
    if entry.waiting is not None and not entry.waiting.usual:
        remarks.append(f"waited in {entry.waiting.waited} of {entry.waiting.samples} samples")
    extra = " ".join(word for word in remarks if word)
    return Cell(figures.microseconds(entry.median_us) + (f" ({extra})" if extra else ""), entry.median_us)


def _legend(comparison: Comparison) -> str:
    programs = [f"{c.holder.programs}" for c in comparison.contexts if c.holder]
    holder = next((c.holder for c in comparison.contexts if c.holder), None)
    names = dict.fromkeys(f"{BESIDE}N" if c.holder else c.context for c in every_context(comparison))
    meanings = "; ".join(f"{name}, {MEANINGS[name]}" for name in names)
    text = (
        f"The geometric mean speedup over {comparison.baseline} in each context, and the smallest of a case, both "
        f"without cases in which it waits for another kernel: {meanings}."
    )
    if holder is None:
        return text
    return (
        f"{text} Each of the {' or '.join(programs)} programs beside occupied {holder.threads} threads and "
        f"{holder.shared_kib} KiB of shared memory of a multiprocessor, from before the backward until after it."
    )


def of_models(comparison: Comparison) -> Section | None:
    """A table for each number of tokens, or None where no model's norms were all measured."""
    parts = [part for title, rows in tables_by_tokens(comparison).items() for part in (f"{title}:", rows)]
    return Section(MODELS, (ABOUT_MODELS, *parts)) if parts else None


def tables_by_tokens(comparison: Comparison) -> dict[str, Table]:
    """What a step of each model spends, an implementation a row, each under the number of tokens of its step."""

    def cell(spender: Spender, model: str) -> Cell:
        ms, error_ms = spender.ms[model], spender.error_ms[model]
        error = f" ± {figures.milliseconds(error_ms)}" if ms is not None and error_ms else ""
        torch = " + torch" if model in spender.with_torch else ""
        return Cell(f"{figures.milliseconds(ms)}{error}{torch}", ms)

    return {
        f"{spent.tokens} tokens": table(
            [*left("impl"), *(Heading(name, left=True, drop=n) for n, name in enumerate(spent.models))],
            [[spender_label(s), *(cell(s, model) for model in spent.models)] for s in (*spent.spenders, spent.add)],
        )
        for spent in (spending(comparison.cases, comparison.budget) if comparison.timed else ())
    }
