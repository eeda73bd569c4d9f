"""All samples of one case, drawn: the share of them that is at most so long, a line an implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from harness.cases import Norm
from harness.results.joining import JoinedCase, same_traffic_add
from reports.data.comparison import CaseComparison, Comparison, is_rankable
from reports.plots.style import ADD, INK, SOFT, Look, key_line, look, page, style, title

ADD_NAME = "same-traffic add"
MOST_TICKS = 9
TAIL = 0.01  # of the samples of each line, at either end: left of the second panel, which one of them could flatten
CAPTION = "All samples of all processes. Right: the same over their own median; the outermost 1 % may lie outside."


def largest(comparison: Comparison) -> list[CaseComparison]:
    """The case of each norm with the most elements, of those that have a ranked implementation on the usual inputs."""
    found: dict[Norm, CaseComparison] = {}
    for case in comparison.cases:
        if case.ranked and case.case.inputs == "normal":
            best = found.setdefault(case.case.norm, case)
            if case.case.rows * case.case.cols > best.case.rows * best.case.cols:
                found[case.case.norm] = case
    return list(found.values())


def ecdf(case: CaseComparison, comparison: Comparison, rows: JoinedCase) -> Figure:
    """The samples of the ranked implementations and of the add: as times, and over their own median."""
    samples = {entry.label: (look(entry.impl), _sorted(rows, entry.impl)) for entry in case.ranked}
    add = same_traffic_add(rows)
    if add is not None and is_rankable(add):
        samples[ADD_NAME] = ADD, np.sort([us for timing in add.timings for us in timing.samples_us])
    key = [key_line(name, plain(drawn)) for name, (drawn, _) in samples.items()]
    sheet = page(
        title(comparison.run, f"samples of {case.case.key}"), 2, across=2, height=3.2, key=key, caption=[CAPTION]
    )
    times, relative = sheet.panels
    reach = 0.0
    for drawn, ordered in samples.values():
        shares = np.arange(1, ordered.size + 1) / ordered.size
        percent = 100 * (ordered / np.median(ordered) - 1)
        for axes, values in ((times, ordered), (relative, percent)):
            axes.step(values, shares, where="post", **style(plain(drawn)))
        inner = np.percentile(percent, (100 * TAIL, 100 * (1 - TAIL)))
        reach = max(reach, *np.abs(inner))
    _label(times, relative, [ordered for _, ordered in samples.values()], reach)
    return sheet.figure


def plain(drawn: Look) -> Look:
    """The look without its marker, which a line of many steps has no room for."""
    return replace(drawn, marker="")


def _sorted(rows: JoinedCase, impl: str) -> NDArray[np.float64]:
    return np.sort([us for timing in rows[impl, "impl"].timings for us in timing.samples_us])


def _label(times: Axes, relative: Axes, samples: Sequence[NDArray[np.float64]], reach: float) -> None:
    times.set_xscale("log")
    low, high = min(float(of[0]) for of in samples), max(float(of[-1]) for of in samples)
    times.set_xlim(low / 1.05, high * 1.05)
    ticks = np.unique([float(f"{tick:.2g}") for tick in np.geomspace(low, high, MOST_TICKS)])
    times.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    times.xaxis.set_minor_locator(NullLocator())
    times.set_xlabel("us (log scale)", color=SOFT, fontsize=9)
    times.set_ylabel("share of the samples at most so long", color=SOFT, fontsize=9)
    if reach:
        relative.set_xlim(-1.1 * reach, 1.1 * reach)
    relative.set_xlabel("% off the median", color=SOFT, fontsize=9)
    relative.tick_params(labelleft=False)
    for axes, name in ((times, "time"), (relative, "scatter")):
        axes.set_ylim(0, 1.0)
        axes.set_title(name, fontsize=9, color=INK, loc="left", pad=4)
