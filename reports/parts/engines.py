"""Compares the times of other engines with ours."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from harness.analysis.joining import Joined, by_case
from harness.analysis.statistics import geomean
from harness.records.file import Results
from harness.records.schema import RANKED
from reports import figures
from reports.markdown_writer import escape, paragraphs, table
from reports.parts import provenance
from reports.table import left

ABOUT = (
    "Median us of each engine, and that over ours. The others flush, queue and average in their own ways; none of "
    "their figures enters a ranking."
)
ASK = "No other engine timed anything here; `normbwd bench --cross-check` has them do so.\n"


def render(results: Results) -> str:
    """A line for each implementation on each case that another engine timed as well, and the geometric means."""
    timed = [
        (joined, engines_us)
        for case in by_case(results).values()
        for (_, role), joined in case.items()
        if role == "impl" and joined.status in RANKED and (engines_us := other_engines(joined))
    ]
    if not timed:
        return ASK
    engines = sorted({engine for _, engines_us in timed for engine in engines_us})
    over_ours: dict[str, list[float]] = {engine: [] for engine in engines}
    rows: list[list[str]] = []
    for joined, engines_us in timed:
        rows.append([joined.case.key, joined.impl, figures.microseconds(joined.median_us)])
        for engine in engines:
            us = engines_us.get(engine)
            quotient = us / joined.median_us if us is not None and joined.median_us else None
            over_ours[engine] += [] if quotient is None else [quotient]
            rows[-1] += [figures.microseconds(us), figures.plain_ratio(quotient)]
    headings = [*left("case", "impl"), "ours", *(head for engine in engines for head in (engine, f"{engine} / ours"))]
    means = [
        f"{engine} {figures.plain_ratio(geomean(quotients))} ({figures.count(len(quotients), 'figure')})"
        for engine, quotients in over_ours.items()
        if quotients
    ]
    parts = [provenance.heading("Other engines", results.run), ABOUT, table(headings, rows)]
    return paragraphs([*parts, f"Geometric mean over ours: {escape(', '.join(means))}." if means else ""])


def other_engines(joined: Joined) -> Mapping[str, float]:
    """Each engine's figure in us, the median over the processes in which it timed."""
    readings: dict[str, list[float]] = {}
    for row in joined.rows:
        for engine, us in row.other_engines_us.items():
            readings.setdefault(engine, []).append(us)
    return {engine: median(values) for engine, values in readings.items()}
