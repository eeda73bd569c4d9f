"""What runs beside the backward costs: the kernel of `beside:N`, and a real all-reduce, of which that kernel tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.results.contexts import ALL_REDUCE, COLD, programs_beside
from harness.results.published.planned import Plan
from harness.results.statistics import geomean
from reports import figures
from reports.data.comparison import Comparison
from reports.data.step import every_context
from reports.markdown_writer import paragraphs, table, write_table
from reports.parts import training_step
from reports.published.sources import Source
from reports.table import words

ABOUT = (
    "Medians in us, and in brackets how many times as long as alone: while the kernel of `beside:N` holds N "
    "multiprocessors, and while NCCL reduces over two GPUs."
)
MARGIN = "margin"  # the run whose in-house kernel is told what is held, by its name in the plan
ABOUT_MARGIN = (
    "How many times as long as alone each takes: the geometric mean, and the longest of a case. Quotients of medians "
    "of different blocks, without an interval."
)
MEANS = "Geometric means of how many times as long as alone, and the longest of a case:"
Times = dict[str, float]  # medians in us by context


def section(sources: Sequence[Source], _plan: Plan) -> str:
    """Of each run that was measured beside an all-reduce: tables by case and by implementation, and what they say."""
    parts: list[str] = []
    for source in (each for each in sources if ALL_REDUCE in each.results.contexts):
        compared = source.comparison
        parts += [
            f"On two {source.device_name} of one host, {source.about}; {source.mark}. {ABOUT}",
            _by_case(compared),
            MEANS,
            write_table(training_step.times(compared)),
            "\n".join(f"- {said}" for said in (_first(compared), *_told(compared))),
        ]
    return paragraphs(parts)


def margins(sources: Sequence[Source], _plan: Plan) -> str:
    """Of each device that has the run in which the in-house kernel is told what is held: times over those alone."""
    parts: list[str] = []
    for source in (each for each in sources if each.name == MARGIN):
        about = f"On {source.device_name}, {source.about}; {source.mark}."
        parts += [about, ABOUT_MARGIN, write_table(training_step.times(source.comparison))]
    return paragraphs(parts)


def _by_case(comparison: Comparison) -> str:
    contexts = [context.context for context in every_context(comparison)]
    rows = [[case, impl, *(_cell(times, context) for context in contexts)] for case, impl, times in _rows(comparison)]
    return table([*words("case", "impl"), *("alone" if name == COLD else name for name in contexts)], rows)


def _rows(comparison: Comparison) -> Iterator[tuple[str, str, Times]]:
    """Each implementation of each case, the fastest alone first."""
    for case in comparison.cases:
        for entry in case.ranked:
            found: Times = {}
            for context in every_context(comparison):
                other = next((each for each in context.cases if each.case == case.case), None)
                us = (timed := other.entry(entry.impl) if other else None) and timed.median_us
                found |= {context.context: us} if us else {}
            yield case.case.key, entry.impl, found


def _cell(times: Times, context: str) -> str:
    if context not in times:
        return figures.NOTHING
    text = figures.microseconds(times[context])
    return text if context == COLD else f"{text} ({figures.plain_ratio(times[context] / times[COLD])})"


def _first(comparison: Comparison) -> str:
    """Whose median is the smallest beside an all-reduce, in how many cases."""
    fastest: dict[str, tuple[float, str]] = {}
    for case, impl, times in _rows(comparison):
        if ALL_REDUCE in times:
            fastest[case] = min(fastest.get(case, (float("inf"), "")), (times[ALL_REDUCE], impl))
    counted = Counter(impl for _, impl in fastest.values()).most_common()
    named = [
        f"{impl} in {number}" + (f" ({', '.join(_cases(fastest, impl))})" if place else "")
        for place, (impl, number) in enumerate(counted)
    ]
    text = f"Smallest median beside an all-reduce, of {figures.count(len(fastest), 'case')}: {', '.join(named)}."
    if all(case.aa_band is None for case in comparison.cases):
        return f"{text} No A/A pair was measured, so that small differences may be none."
    return text


def _cases(fastest: dict[str, tuple[float, str]], impl: str) -> list[str]:
    return [case for case, (_, first) in fastest.items() if first == impl]


def _told(comparison: Comparison) -> Iterator[str]:
    """How the kernel of `beside:N` and the all-reduce differ, a sentence for each N."""
    rows = [times for _, _, times in _rows(comparison)]
    for context in (each.context for each in comparison.contexts if programs_beside(each.context)):
        over = [times[ALL_REDUCE] / times[context] for times in rows if {ALL_REDUCE, context} <= times.keys()]
        if over:
            lowest, mean, highest = (figures.plain_ratio(value) for value in (min(over), geomean(over), max(over)))
            more = sum(value > 1 for value in over)
            yield (
                f"`{context}` underestimates an all-reduce in {more} of {len(over)} rows: beside that the backward "
                f"takes {mean} times as long as beside the kernel (geometric mean; {lowest} to {highest})."
            )
