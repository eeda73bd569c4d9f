"""Compares the times of other timing engines with ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from harness.analysis import figures
from harness.analysis.joining import Joined, by_case
from harness.analysis.statistics import Ratio, geomean
from harness.cases import NormCase
from harness.records.file import Results
from harness.records.schema import RANKED
from reports.markdown_writer import paragraphs, table
from reports.parts import provenance
from reports.studies.orders import Order, clear_orders
from reports.table import words

ABOUT = (
    "Median us of each engine, and that over ours. The others flush, queue and average in their own ways; none of "
    "their figures enters a ranking."
)
Times = Mapping[tuple[NormCase, str], float]  # of one engine in us, by case and implementation


def render(results: Results) -> str:
    """A line for each implementation on each case that another engine timed as well, and the geometric means."""
    timed = [
        (joined, others)
        for rows in by_case(results).values()
        for (_, role), joined in rows.items()
        if role == "impl" and joined.status in RANKED and (others := other_engines(joined))
    ]
    if not timed:
        return "No other engine timed anything here; `normbwd bench --cross-check` has them do so.\n"
    engines = sorted({engine for _, others in timed for engine in others})
    headings = [*words("case", "impl"), "ours", *(head for engine in engines for head in (engine, f"{engine} / ours"))]
    rows = [
        [joined.case.key, joined.impl, figures.microseconds(joined.median_us)]
        + [cell for engine in engines for cell in _cells(others.get(engine), joined.median_us)]
        for joined, others in timed
    ]
    parts = [provenance.heading("Other engines", results.run), ABOUT, table(headings, rows)]
    orders = clear_orders(results)
    for engine in engines:
        times = {(joined.case, joined.impl): others[engine] for joined, others in timed if engine in others}
        ours = {(joined.case, joined.impl): joined.median_us for joined, _ in timed}
        over_ours = [us / our_us for key, us in times.items() if (our_us := ours[key])]
        mean = f"{figures.plain_ratio(geomean(over_ours))} over ours, the geometric mean." if over_ours else ""
        parts += [f"## {engine}", mean, *_turned(orders, engine, times)]
    return paragraphs(parts)


def other_engines(joined: Joined) -> Mapping[str, float]:
    """Each engine's figure in us, the median over the processes in which it timed."""
    readings: dict[str, list[float]] = {}
    for row in joined.rows:
        for engine, us in row.other_engines_us.items():
            readings.setdefault(engine, []).append(us)
    return {engine: median(values) for engine, values in readings.items()}


def _turned(orders: Sequence[Order], engine: str, times: Times) -> list[str]:
    """How many orders the engine's times, which have no interval, contradict; a table of those about the fastest."""
    slower = {(order.case, order.second) for order in orders}
    both = [order for order in orders if {(order.case, order.first), (order.case, order.second)} <= times.keys()]
    over = [(order, times[order.case, order.second] / times[order.case, order.first]) for order in both]
    turned = [(order, ratio) for order, ratio in over if ratio < 1]
    summary = (
        f"It turns {len(turned)} of the {figures.count(len(both), 'pair')} that are clear here. Listed are those in "
        "which nobody is clearly faster than the first here."
    )
    headings = [*words("case", "faster here", "than"), "here [95 %]", f"by {engine}"]
    rows = [
        [order.case.key, order.first, order.second, *_both(order.speedup, ratio)]
        for order, ratio in turned
        if (order.case, order.first) not in slower
    ]
    return [summary, table(headings, rows)]


def _both(here: Ratio, there: float) -> tuple[str, str]:
    return figures.ratio_and_interval(here), figures.plain_ratio(there)


def _cells(us: float | None, ours: float | None) -> list[str]:
    return [figures.microseconds(us), figures.plain_ratio(us / ours if us is not None and ours else None)]
