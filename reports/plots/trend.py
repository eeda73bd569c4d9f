"""The history of each case: how far every run is off the first level of its series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.analysis.comparison import Comparison
from harness.analysis.history import History, Series, histories
from harness.cases import Norm
from harness.grouping import grouped
from harness.records.schema import FAILED
from reports import figures
from reports.plots.style import BAD, INK, SOFT, backward, line_style, sheet, styled, title

MOST_PANELS = 12
CAPTION = (
    "Runs by time. Time over that of an add in the same blocks, off its first runs. Number: a change. Cross: failed."
    "\nDotted: another engine, driver or shared library from here on; nothing is compared across it."
)


def trends(runs: Sequence[Comparison]) -> Iterator[tuple[str, Figure]]:
    """The plots of several runs with their names: one a norm, for each device."""
    devices = histories(runs)
    for number, history in enumerate(devices, 1):
        for norm in get_args(Norm):
            if figure := trend(history, norm):
                yield f"history-{norm}{f'-{number}' if len(devices) > 1 else ''}", figure


@styled
def trend(history: History, norm: Norm) -> Figure | None:
    """A panel a case, a line an implementation: those that changed first, at most MOST_PANELS; None without a case."""
    changed_first = sorted(history.series, key=lambda series: not series.changes)
    cases = grouped((series.case.key, series) for series in changed_first if series.case.norm == norm)
    if not cases:
        return None
    shown = dict(list(cases.items())[:MOST_PANELS])
    what = [f"history of the {backward(norm)}"] + ([f"{len(shown)} of {len(cases)} cases"] if shown != cases else [])
    figure, drawn = sheet(title(history.runs[-1].run, *what), len(shown), height=2.2, across=2, caption=CAPTION)
    for axes, (key, of_case) in zip(drawn, shown.items(), strict=True):
        axes.set_title(key)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        for place in history.breaks:
            axes.axvline(place + 0.5, color=SOFT, linestyle=":", linewidth=1)
        for series in of_case:
            _draw(axes, history, series)
    for axes in drawn[::2]:
        axes.set_ylabel("% slower")
    handles = {line.get_label(): line for axes in drawn for line in axes.get_lines()}
    named = [line for name, line in handles.items() if not str(name).startswith("_")]
    figure.legend(handles=named, loc="outside upper right", ncols=min(5, len(named)))
    return figure


def _draw(axes: Axes, history: History, series: Series) -> None:
    stretches = history.stretches(series)
    first = [series.values[run] or 0.0 for run in stretches[0] if not series.changes or run < series.changes[0].run]
    base = median(first or [series.values[stretches[0][0]] or 1.0])
    off = {run: 100 * ((value or 0.0) / base - 1) for run, value in enumerate(series.values) if value}
    style = line_style(series.impl)
    for number, runs in enumerate(stretches):
        label = None if number else series.impl
        drawn = [off[run] for run in runs]
        axes.plot([run + 1 for run in runs], drawn, **style.line, markersize=4, linewidth=1.2, label=label)
    for change in series.changes:
        at, text = (change.run + 1, off[change.run]), figures.signed_percent(change.relative)
        axes.annotate(text, at, (-6, 4), textcoords="offset points", ha="right", fontsize=8, color=INK)
    failed = [run + 1 for run, entry in enumerate(series.entries) if entry and entry.status in FAILED]
    axes.plot(
        failed, [0.0] * len(failed), color=BAD, marker="x", markersize=7, markeredgewidth=2, linestyle="", zorder=5
    )
