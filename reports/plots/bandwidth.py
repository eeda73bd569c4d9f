"""Bandwidth against hidden size: a panel for sizes of equal elements, a line for each implementation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.analysis.case_comparison import CaseComparison, bandwidth_gbps
from harness.analysis.comparison import Comparison
from harness.analysis.joining import Joined, same_traffic_add
from harness.analysis.pairing import ABOUT_INTERVALS, time_interval
from harness.cases import NormCase
from harness.cases.traffic import ADD_NAME
from reports import figures
from reports.plots.style import ADD, DASHED, DOTTED, SOFT, backward, line_style, sheet, styled, title
from reports.size_groups import Group

CAPTION = (
    "GB/s: the bytes that every backward must move, over the median time. Black: an elementwise add of the "
    "same bytes.\n"
    f"Bands, where wider than a line: {ABOUT_INTERVALS}."
)


@dataclass(frozen=True)
class Point:
    """The bandwidth at one size in GB/s, with its interval, nan where none is known."""

    cols: int
    value: float
    low: float
    high: float


Curves = dict[str, list[Point]]


@styled
def bandwidth(group: Group, comparison: Comparison) -> Figure | None:
    """GB/s against columns; None where no implementation has two sizes."""
    strips = {name: _curves(cases) for name, cases in group.strips.items()}
    panels = {name: curves for name, curves in strips.items() if max(map(len, curves.values()), default=0) > 1}
    if not panels:
        return None
    heading = title(comparison.run, f"bandwidth of the {backward(group.norm)}", group.variant)
    across = 2 if len(panels) in (2, 4) else 3
    figure, drawn = sheet(heading, len(panels), height=4.4, across=across, caption=CAPTION)
    for axes, (name, curves) in zip(drawn, panels.items(), strict=True):
        axes.set_title(name)
        axes.grid(visible=False)
        for curve, points in curves.items():
            _draw(axes, curve, points)
        for level, (value, dashes) in _levels(group, comparison).items():
            axes.axhline(value, color=SOFT, linestyle=dashes, linewidth=1.2, zorder=1.5, label=level)
        axes.set_xscale("log", base=2)
        axes.margins(x=0.11)
        crowded = len(group.cols) > 6 or any(right < 2 * left for left, right in pairwise(group.cols))
        axes.set_xticks(group.cols, [str(cols) for cols in group.cols], rotation=90 if crowded else 0)
        axes.set_xlabel("columns (hidden size)")
    drawn[0].set_ylim(bottom=0)
    for axes in drawn[::across]:
        axes.set_ylabel("GB/s")
    _write_key(figure, drawn)
    return figure


def _levels(group: Group, comparison: Comparison) -> dict[str, tuple[float, object]]:
    """The bandwidths that hold for all sizes, with their dashes: of a large copy, and of the datasheet."""
    copy = comparison.budget.copy_gbps if comparison.budget else None
    datasheet = comparison.run.device.datasheet_gbps if group.cases[0].case.device != "cpu" else None
    levels = {"large copy": (copy, DASHED), "datasheet": (datasheet, DOTTED)}
    return {f"{name}, {figures.gbps(value)}": (value, dashes) for name, (value, dashes) in levels.items() if value}


def _curves(cases: list[CaseComparison]) -> Curves:
    """The points of each implementation that ranks, and of the add."""
    curves: Curves = {}
    for case in cases:
        for entry in case.ranked:
            curves.setdefault(entry.impl, []).append(_point(case.case, case.joined[entry.impl, "impl"]))
        if case.add_us and (add := same_traffic_add(case.joined)):
            curves.setdefault(ADD_NAME, []).append(_point(case.case, add))
    return curves


def _point(case: NormCase, joined: Joined) -> Point:
    """The bandwidth by the median, without an interval where one end of it is not a number above 0."""
    low_us, high_us = time_interval(joined.timings)
    value, low, high = (bandwidth_gbps(case, us) or math.nan for us in (joined.median_us, high_us, low_us))
    has_interval = math.isfinite(low) and math.isfinite(high) and low > 0
    return Point(case.cols, value, low if has_interval else math.nan, high if has_interval else math.nan)


def _draw(axes: Axes, name: str, points: list[Point]) -> None:
    cols, style = [point.cols for point in points], ADD if name == ADD_NAME else line_style(name)
    axes.plot(cols, [point.value for point in points], **style.line, label=name)
    if not any(math.isnan(point.low) for point in points):
        low, high = [point.low for point in points], [point.high for point in points]
        axes.fill_between(cols, low, high, color=style.colour, alpha=0.25, linewidth=0)


def _write_key(figure: Figure, drawn: list[Axes]) -> None:
    """Names beside the last panel, from the highest line at its right edge to the lowest; then those it has not."""
    handles = {line.get_label(): line for axes in drawn for line in axes.get_lines()}
    named = [line for name, line in handles.items() if not str(name).startswith("_")]
    named.sort(key=lambda line: (line.axes is drawn[-1], line.get_ydata()[-1]), reverse=True)  # pyright: ignore
    figure.legend(handles=named, loc="outside right center", labelspacing=0.7)
