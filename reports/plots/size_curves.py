"""Speed against hidden size, drawn: GB/s, and percent of the same-traffic add, a line an implementation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from harness.cases import NormCase
from harness.results.joining import Joined, JoinedCase, interleaved, same_traffic_add
from harness.results.pairing import ABOUT_INTERVALS, quotient_interval, time_interval
from reports import figures
from reports.data.comparison import CaseComparison, Comparison, is_rankable
from reports.data.entries import Entry, bandwidth_gbps
from reports.data.size_groups import Group, Strip
from reports.plots.style import ADD, DASHED, DOTTED, INK, SOFT, Look, Page, backward, key_line, look, page, style, title

COPY, DATASHEET = Look(SOFT, "", DASHED), Look(SOFT, "", DOTTED)
CROWDED = 0.36  # inches: labels of sizes that are nearer than this are turned
TURNED: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor", "ha": "right"}
ADD_NAME = "same-traffic add"
BAND = f"Bands, where they are wider than a line: {ABOUT_INTERVALS}."
GBPS = "GB/s: the bytes that every backward must move, over the median time. Add: elementwise, the same bytes."
PERCENT = "100 %: the median time of an elementwise add that moves the same bytes, in the same blocks."


@dataclass(frozen=True)
class Point:
    """What one implementation reached at one size, and its interval, nan where none is known."""

    cols: int
    value: float
    low: float
    high: float


Rows = Mapping[NormCase, JoinedCase]
Curves = dict[str, list[Point]]
Measure = Callable[[CaseComparison, Entry, Rows], Point | None]


@dataclass(frozen=True)
class Gauge:
    """A level that holds for all sizes."""

    name: str
    value: float
    look: Look


def bandwidth(group: Group, comparison: Comparison, rows: Rows) -> Figure | None:
    """GB/s against columns; None where nothing has two sizes."""
    copy = comparison.budget.copy_gbps if comparison.budget else None
    datasheet = comparison.run.device.datasheet_gbps if group.cases[0].case.device != "cpu" else None
    gauges = [
        *([Gauge(f"large copy, {figures.gbps(copy)} GB/s", copy, COPY)] if copy else []),
        *([Gauge(f"datasheet, {figures.gbps(datasheet)} GB/s", datasheet, DATASHEET)] if datasheet else []),
    ]
    curves = [_curves(strip, rows, _gbps) | _add_curve(strip, rows) for strip in group.strips]
    return _draw(group, comparison, curves, gauges, ("bandwidth of the", "GB/s", [GBPS, BAND]))


def percent_of_add(group: Group, comparison: Comparison, rows: Rows) -> Figure | None:
    """Percent of the same-traffic add against columns; None where the file has no add, or nothing two sizes."""
    gauges = [Gauge(ADD_NAME, 100.0, ADD)]
    curves = [_curves(strip, rows, _percent) for strip in group.strips]
    return _draw(group, comparison, curves, gauges, ("speed of the", "% of same-traffic add", [PERCENT, BAND]))


def _curves(strip: Strip, rows: Rows, measure: Measure) -> Curves:
    found: Curves = {}
    for case in strip.cases:
        for entry in case.ranked:
            if point := measure(case, entry, rows):
                found.setdefault(entry.impl, []).append(point)
    return found


def _add_curve(strip: Strip, rows: Rows) -> Curves:
    adds = [(case, _add_of(case, rows)) for case in strip.cases]
    points = [_moved(case.case, add) for case, add in adds if add is not None and case.add_us]
    return {ADD_NAME: points} if points else {}


def _gbps(case: CaseComparison, entry: Entry, rows: Rows) -> Point | None:
    return _moved(case.case, rows[case.case][entry.impl, "impl"])


def _moved(case: NormCase, joined: Joined) -> Point:
    low_us, high_us = time_interval(joined.timings)
    value, low, high = (bandwidth_gbps(case, us) or math.nan for us in (joined.median_us, high_us, low_us))
    return _point(case, value, low, high)


def _percent(case: CaseComparison, entry: Entry, rows: Rows) -> Point | None:
    add, joined = _add_of(case, rows), rows[case.case][entry.impl, "impl"]
    found = quotient_interval(interleaved(add, joined)) if add else None
    if entry.percent_of_add is None or found is None:
        return None
    return _point(case.case, entry.percent_of_add, 100 * found[0], 100 * found[1])


def _point(case: NormCase, value: float, low: float, high: float) -> Point:
    """A point, without an interval where one end of it is not a number above 0."""
    known = math.isfinite(low) and math.isfinite(high) and low > 0
    return Point(case.cols, value, low if known else math.nan, high if known else math.nan)


def _add_of(case: CaseComparison, rows: Rows) -> Joined | None:
    add = same_traffic_add(rows[case.case])
    return add if add is not None and is_rankable(add) else None


def _draw(
    group: Group,
    comparison: Comparison,
    curves: Sequence[Curves],
    gauges: Sequence[Gauge],
    words: tuple[str, str, list[str]],
) -> Figure | None:
    drawn = [(strip.name, of) for strip, of in zip(group.strips, curves, strict=True) if of]
    if not any(len(points) > 1 for _, of in drawn for points in of.values()):
        return None
    of_what, unit, caption = words
    names = sorted({name for _, of in drawn for name in of}, key=lambda name: (name == ADD_NAME, name))
    key = [key_line(name, _look(name)) for name in names] + [key_line(gauge.name, gauge.look) for gauge in gauges]
    heading = title(comparison.run, f"{of_what} {backward(group.norm)}", group.variant)
    sheet = page(heading, len(drawn), across=2 if len(drawn) in (2, 4) else 3, height=3.3, key=key, caption=caption)
    values = [point.value for _, of in drawn for points in of.values() for point in points]
    top = 1.03 * max(values + [gauge.value for gauge in gauges])
    for axes, (name, of) in zip(sheet.panels, drawn, strict=True):
        axes.set_title(name, fontsize=9, color=INK, loc="left", pad=4)
        for gauge in gauges:
            axes.axhline(gauge.value, color=gauge.look.colour, linestyle=gauge.look.dashes, linewidth=1.2, zorder=1.5)
        for impl, points in of.items():
            _line(axes, points, _look(impl))
        axes.set_ylim(0, top)
    _label(sheet, group.cols, unit)
    return sheet.figure


def _look(name: str) -> Look:
    return ADD if name == ADD_NAME else look(name)


def _line(axes: Axes, points: Sequence[Point], drawn: Look) -> None:
    cols = [point.cols for point in points]
    band = [point.low for point in points] + [point.high for point in reversed(points)]
    if not any(math.isnan(end) for end in band):
        axes.fill([*cols, *reversed(cols)], band, color=drawn.colour, alpha=0.25, linewidth=0)
    axes.plot(cols, [point.value for point in points], **style(drawn))
    if len(points) == 1 and not drawn.marker:
        axes.plot(cols, points[0].value, color=drawn.colour, marker="_", markersize=12)


def _label(sheet: Page, cols: Sequence[int], unit: str) -> None:
    """Every size is a tick; sizes that stand too near to each other for their labels have them turned."""
    reach = math.log2(cols[-1] / cols[0]) + 0.5
    for place, axes in enumerate(sheet.panels):
        width = axes.get_position().width * sheet.figure.get_figwidth()
        crowded = any(math.log2(more / fewer) / reach * width < CROWDED for fewer, more in pairwise(cols))
        axes.set_xscale("log", base=2)
        axes.set_xlim(cols[0] / 2**0.25, cols[-1] * 2**0.25)
        axes.set_xticks(cols, [str(each) for each in cols], **(TURNED if crowded else {}))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("columns (hidden size)", color=SOFT, fontsize=9)
        if place % sheet.across:
            axes.tick_params(labelleft=False)
        else:
            axes.set_ylabel(unit, color=SOFT, fontsize=9)
