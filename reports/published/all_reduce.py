"""Backwards beside another kernel: that of `beside:N`, and a real all-reduce, which the former stands for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.analysis import figures
from harness.analysis.comparison import Comparison
from harness.analysis.statistics import geomean
from harness.analysis.step import every_context
from harness.records.contexts import ALL_REDUCE, COLD, programs_beside
from harness.records.published_plan import Plan
from reports.markdown_writer import paragraphs, table, write_table
from reports.parts import training_step
from reports.published.sources import Source
from reports.table import words

ABOUT = (
    "Medians in us while NCCL reduces over two GPUs, and in brackets how many times as long as alone; **bold**: the "
    "smallest of a case. What waits takes as long as the all-reduce."
)
MARGIN = "margin"  # the name in the plan of the run whose in-house kernel leaves multiprocessors free
ABOUT_MARGIN = (
    "How many times as long as alone each takes: the geometric mean, and the longest of a case. Quotients of medians "
    "of different blocks, without an interval."
)
MEANS = (
    "Geometric means of how many times as long as alone, and the longest of a case, also while the kernel of "
    "`beside:N` holds N multiprocessors:"
)
Times = dict[str, float]  # medians in us by context


def section(sources: Sequence[Source], _plan: Plan) -> str:
    """Tables by case and by implementation, and sentences, for each run that was measured beside an all-reduce."""
    parts: list[str] = []
    for source in (source for source in sources if ALL_REDUCE in source.results.contexts):
        comparison = source.comparison
        parts += [
            f"On two {source.device_name} of one host, {source.about}; {source.mark}. {ABOUT}",
            _by_case(comparison),
            MEANS,
            write_table(training_step.times(comparison)),
            "\n".join(f"- {sentence}" for sentence in (_fastest(comparison), *_differences(comparison))),
        ]
    return paragraphs(parts)


def margins(sources: Sequence[Source], _plan: Plan) -> str:
    """The times over those alone of the run MARGIN, on each device that has it."""
    parts: list[str] = []
    for source in (source for source in sources if source.name == MARGIN):
        about = f"On {source.device_name}, {source.about}; {source.mark}."
        parts += [about, ABOUT_MARGIN, write_table(training_step.times(source.comparison))]
    return paragraphs(parts)


def _by_case(comparison: Comparison) -> str:
    """A row a case, a column an implementation: those of the first case first, from the fastest alone."""
    beside: dict[str, dict[str, Times]] = {}
    for case, impl, times in _rows(comparison):
        beside.setdefault(case, {})[impl] = times
    impls = list(dict.fromkeys(impl for found in beside.values() for impl in found))
    waiting = _waiting(comparison)
    rows = [[case, *(_cell(found, impl, (case, impl) in waiting) for impl in impls)] for case, found in beside.items()]
    return table([*words("case"), *impls], rows)


def _cell(found: dict[str, Times], impl: str, waits: bool) -> str:
    times = found.get(impl, {})
    if ALL_REDUCE not in times:
        return "waits" if waits else figures.NOTHING
    us = figures.microseconds(times[ALL_REDUCE])
    smallest = times[ALL_REDUCE] == min(other[ALL_REDUCE] for other in found.values() if ALL_REDUCE in other)
    return f"{f'**{us}**' if smallest else us} ({figures.plain_ratio(times[ALL_REDUCE] / times[COLD])})"


def _waiting(comparison: Comparison) -> set[tuple[str, str]]:
    """The cases and implementations that wait for the end of an all-reduce."""
    return {
        (case.case.key, entry.impl)
        for context in comparison.contexts
        if context.context == ALL_REDUCE
        for case in context.cases
        for entry in case.entries
        if entry.usually_waits
    }


def _rows(comparison: Comparison) -> Iterator[tuple[str, str, Times]]:
    """Each implementation of each case, the fastest alone first, with its times where it does not wait."""
    for case in comparison.cases:
        for entry in case.ranked:
            times: Times = {}
            for context in every_context(comparison):
                same_case = next((other for other in context.cases if other.case == case.case), None)
                timed = same_case.entry(entry.impl) if same_case else None
                if timed and timed.median_us and not timed.usually_waits:
                    times[context.context] = timed.median_us
            yield case.case.key, entry.impl, times


def _fastest(comparison: Comparison) -> str:
    """A sentence: in how many cases each implementation has the smallest median beside an all-reduce."""
    fastest: dict[str, tuple[float, str]] = {}
    for case, impl, times in _rows(comparison):
        if ALL_REDUCE in times:
            fastest[case] = min(fastest.get(case, (float("inf"), "")), (times[ALL_REDUCE], impl))
    counts = Counter(impl for _, impl in fastest.values()).most_common()
    impls = [
        f"{impl} in {number}" + (f" ({', '.join(_cases(fastest, impl))})" if place else "")
        for place, (impl, number) in enumerate(counts)
    ]
    text = f"Smallest median beside an all-reduce, of {figures.count(len(fastest), 'case')}: {', '.join(impls)}."
    if all(case.aa_band is None for case in comparison.cases):
        return f"{text} No A/A pair was measured, so that small differences may be none."
    return text


def _cases(fastest: dict[str, tuple[float, str]], impl: str) -> list[str]:
    return [case for case, (_, first) in fastest.items() if first == impl]


def _differences(comparison: Comparison) -> Iterator[str]:
    """A sentence for each N on how the kernel of `beside:N` and the all-reduce differ."""
    rows = [times for _, _, times in _rows(comparison)]
    for context in (other.context for other in comparison.contexts if programs_beside(other.context)):
        ratios = [times[ALL_REDUCE] / times[context] for times in rows if {ALL_REDUCE, context} <= times.keys()]
        if ratios:
            lowest, mean, highest = map(figures.plain_ratio, (min(ratios), geomean(ratios), max(ratios)))
            more = sum(ratio > 1 for ratio in ratios)
            yield (
                f"`{context}` underestimates an all-reduce in {more} of {len(ratios)} rows that do not wait: beside "
                "that the backward "
                f"takes {mean} times as long as beside the kernel (geometric mean; {lowest} to {highest})."
            )
