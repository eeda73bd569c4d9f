"""Compares the times of other engines with ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from harness.analysis import figures
from harness.analysis.joining import Joined, by_case
from harness.analysis.statistics import geomean
from harness.cases import NormCase
from harness.records.file import Results
from harness.records.schema import RANKED
from reports.markdown_writer import paragraphs, table
from reports.parts import provenance
from reports.studies.orders import Order, clear_orders
from reports.table import words

Readings = Mapping[tuple[NormCase, str], Mapping[str, float]]  # of each engine in us, by case and implementation

ABOUT = (
    "Median us of each engine, and that over ours. The others flush, queue and average in their own ways; none of "
    "their figures enters a ranking."
)


def render(results: Results) -> str:
    """A line for each implementation on each case that another engine timed as well, and the geometric means."""
    readings = [
        (case.key, joined, engines_us_of_row)
        for case, engines_us in by_case(results).items()
        for (_, role), joined in engines_us.items()
        if role == "impl" and joined.status in RANKED and (engines_us_of_row := other_engines(joined))
    ]
    if not readings:
        return "No other engine timed anything here; `normbwd bench --cross-check` has them do so.\n"
    engines = sorted({engine for _, _, engines_us in readings for engine in engines_us})
    headings = [*words("case", "impl"), "ours", *(head for engine in engines for head in (engine, f"{engine} / ours"))]
    rows = [
        [key, joined.impl, figures.microseconds(joined.median_us)]
        + [cell for engine in engines for cell in _cells(engines_us.get(engine), joined.median_us)]
        for key, joined, engines_us in readings
    ]
    means = [
        f"{engine} {figures.plain_ratio(geomean(quotients))} ({figures.count(len(quotients), 'figure')})"
        for engine in engines
        if (
            quotients := [
                engines_us[engine] / j.median_us
                for _, j, engines_us in readings
                if engine in engines_us and j.median_us
            ]
        )
    ]
    parts = [provenance.heading("Other engines", results.run), ABOUT, table(headings, rows)]
    parts += [f"Geometric mean over ours: {', '.join(means)}."] if means else []
    by_result = {(joined.case, joined.impl): engines_us for _, joined, engines_us in readings}
    orders = clear_orders(results)
    for engine in engines:
        parts += [f"## Orders that {engine} turns", *_turned(orders, engine, by_result)]
    return paragraphs(parts)


def turned(orders: Sequence[Order], engine: str, readings: Readings) -> list[Order]:
    """The orders that an engine contradicts: by its times, which have no interval, the second is faster."""
    return [order for order in orders if (times := _both(order, engine, readings)) is not None and times[0] > times[1]]


def _both(order: Order, engine: str, readings: Readings) -> tuple[float, float] | None:
    first, second = (readings.get((order.case, impl), {}).get(engine) for impl in (order.first, order.second))
    return None if first is None or second is None else (first, second)


def _turned(orders: Sequence[Order], engine: str, readings: Readings) -> list[str]:
    """The number of orders that an engine contradicts, and a table of those about the fastest implementation."""
    opposed = turned(orders, engine, readings)
    slower = {(order.case, order.second) for order in orders}
    of_fastest = [order for order in opposed if (order.case, order.first) not in slower]
    both = sum(_both(order, engine, readings) is not None for order in orders)
    summary = (
        f"{len(opposed)} of the {figures.count(both, 'pair')} that are clear here. Listed are those in which nobody is "
        "clearly faster than the first here."
    )
    headings = [*words("case", "faster here", "than"), "here [95 %]", f"by {engine}"]
    rows = [
        [o.case.key, o.first, o.second, figures.ratio_and_interval(o.speedup), figures.plain_ratio(times[1] / times[0])]
        for o in of_fastest
        if (times := _both(o, engine, readings)) is not None
    ]
    return [summary, table(headings, rows)] if rows else [summary]


def other_engines(joined: Joined) -> Mapping[str, float]:
    """Each engine's figure in us, the median over the processes in which it timed."""
    readings: dict[str, list[float]] = {}
    for row in joined.rows:
        for engine, us in row.other_engines_us.items():
            readings.setdefault(engine, []).append(us)
    return {engine: median(values) for engine, values in readings.items()}


def _cells(us: float | None, ours: float | None) -> list[str]:
    return [figures.microseconds(us), figures.plain_ratio(us / ours if us is not None and ours else None)]
