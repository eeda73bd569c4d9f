"""How the error of dweight grows with the rows, drawn: a panel a hidden size, a line an implementation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from harness.cases import Norm
from harness.results.schema import RunRecord
from reports.data.outcomes import Outcome
from reports.parts.precision import Slope, slopes
from reports.plots.style import (
    DASHED,
    DOTTED,
    FAINT,
    INK,
    SOFT,
    Look,
    Page,
    backward,
    key_line,
    look,
    page,
    style,
    title,
)

CAPTION = (
    "Against float64, on the usual inputs. Guides: an error that the rows do not change, and one that grows with their "
    "square root.",
    "Points are moved sideways, so that equal ones stand side by side.",
)
SPREAD = 0.7  # of the way from one number of rows to the next, for the points of all implementations
LEAST_FACTOR = 5.0  # from the bottom of the vertical axis to its top
BELOW = 0.85  # of the smallest error, where the guides begin: clear of the lines
GUIDES = {"slope 0": (0.0, Look(FAINT, "", DASHED)), "slope 1/2": (0.5, Look(FAINT, "", DOTTED))}


def precision(outcomes: Iterable[Outcome], run: RunRecord) -> dict[Norm, Figure]:
    """A figure for each norm that has columns with three numbers of rows."""
    found: dict[Norm, list[Slope]] = {}
    for slope in slopes(outcomes):
        found.setdefault(slope.norm, []).append(slope)
    return {norm: _draw(norm, of, run) for norm, of in found.items()}


def _draw(norm: Norm, found: Sequence[Slope], run: RunRecord) -> Figure:
    panels: dict[tuple[str, int], list[Slope]] = {}
    for slope in found:
        panels.setdefault((slope.variant, slope.cols), []).append(slope)
    impls = sorted({slope.impl for slope in found})
    key = [key_line(impl, look(impl)) for impl in impls]
    key += [key_line(name, drawn) for name, (_, drawn) in GUIDES.items()]
    variants = sorted({slope.variant for slope in found})
    heading = title(run, f"error of dweight, {backward(norm)}", *variants)
    sheet = page(heading, len(panels), height=2.9, key=key, caption=CAPTION)
    for axes, ((variant, cols), of) in zip(sheet.panels, sorted(panels.items()), strict=True):
        _fill(axes, of, impls)
        name = f"{cols} columns" + (f", {variant}" if len(variants) > 1 else "")
        axes.set_title(name, fontsize=9, color=INK, loc="left", pad=4)
    _label(sheet)
    return sheet.figure


def _fill(axes: Axes, found: Sequence[Slope], impls: Sequence[str]) -> None:
    rows = sorted({each for slope in found for each, _ in slope.points})
    anchor = BELOW * min(rms for slope in found for _, rms in slope.points)
    for power, drawn in GUIDES.values():
        axes.plot(rows, [anchor * (each / rows[0]) ** power for each in rows], **style(drawn), zorder=1.5)
    nearest = min(math.log2(more / fewer) for fewer, more in pairwise(rows))
    for slope in found:
        aside = 2 ** (SPREAD * nearest * ((impls.index(slope.impl) + 0.5) / len(impls) - 0.5))
        line: dict[str, Any] = {**style(look(slope.impl)), "linewidth": 0.9}
        axes.plot([aside * each for each, _ in slope.points], [rms for _, rms in slope.points], **line)
    axes.set_xscale("log", base=2)
    axes.set_xticks(rows, [str(each) for each in rows])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("rows", color=SOFT, fontsize=9)


def _label(sheet: Page) -> None:
    """One vertical axis for all panels, that goes far enough for small differences to look small."""
    ends = [axes.get_ylim() for axes in sheet.panels if axes.set_yscale("log") is None]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    high = max(high, low * LEAST_FACTOR)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 1e3 else (1,)
    ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
    for place, axes in enumerate(sheet.panels):
        axes.set_ylim(low, high)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_yticks(ticks, [f"{tick:.0e}".replace("e-0", "e-") for tick in ticks])
        if place % sheet.across:
            axes.tick_params(labelleft=False)
        else:
            axes.set_ylabel("relative rms error of dweight", color=SOFT, fontsize=9)
