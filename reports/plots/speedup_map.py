"""Speedups over the baseline for every size: a panel for each implementation, a cell for each case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from harness.analysis.comparison import Comparison
from harness.analysis.statistics import geomean
from reports import figures
from reports.plots.style import INK, backward, sheet, styled, title
from reports.size_groups import Group

MAP = colormaps["PuOr_r"].resampled(32)  # orange is faster, purple slower: the colour-blind tell them apart
CELL, BAR_WIDTH = 0.3, 0.14  # inches: the height of a cell, and the width of the scale
MANY = 9  # columns, beyond which two panels stand side by side and not three
# Ends of the scale, as powers of two: at least 1.5, so that small differences look small, and at most 4, so that one
# case of a fallback does not pale the others.
LEAST_REACH, MOST_REACH = math.log2(1.5), 2.0
CAPTION = (
    "\N{ALMOST EQUAL TO}: not told from 1, as the 95 % interval reaches into the A/A band. "
    "Blank: not ranked, or not measured. Best geometric mean first."
)


@dataclass(frozen=True)
class Speedup:
    """A speedup, where it stands in its panel, and whether it cannot be told from 1."""

    column: int
    strip: int
    value: float
    same: bool


@styled
def speedups(group: Group, comparison: Comparison) -> Figure | None:
    """A panel for each implementation but the baseline, best first; None where no implementation has a speedup."""
    panels = _by_impl(group)
    if not panels:
        return None
    strips, cols = group.strips, group.cols
    heading = f"speedup of the {backward(group.norm)} over {comparison.baseline}"
    across = 3 if len(cols) <= MANY else 2
    figure, drawn = sheet(
        title(comparison.run, heading, group.variant),
        len(panels),
        across=across,
        height=CELL * len(strips),
        caption=CAPTION,
    )
    reach = max(abs(math.log2(speedup.value)) for speedups in panels.values() for speedup in speedups)
    reach = min(max(reach, LEAST_REACH), MOST_REACH)
    scale = Normalize(-reach, reach, clip=True)
    for axes, (impl, speedups) in zip(drawn, panels.items(), strict=True):
        axes.set_title(impl)
        _fill(axes, speedups, (len(strips), len(cols)), scale)
        axes.set_xticks(range(len(cols)), [str(number) for number in cols], fontsize=7)
    drawn[0].set_yticks(range(len(strips)), [strip.name for strip in strips])
    drawn[0].invert_yaxis()
    for axes in drawn[-across:]:
        axes.set_xlabel("columns (hidden size)", fontsize=8)
    ticks = [power / 2 for power in range(math.ceil(-2 * reach), math.floor(2 * reach) + 1)]
    bar_height = -(-len(panels) // across) * (CELL * len(strips) + 0.5)
    bar = figure.colorbar(ScalarMappable(scale, MAP), ax=drawn, aspect=bar_height / BAR_WIDTH, ticks=ticks, pad=0.01)
    bar.ax.set_yticklabels([f"{2**tick:.2g}" for tick in ticks])
    bar.outline.set_visible(False)
    return figure


def _by_impl(group: Group) -> dict[str, list[Speedup]]:
    panels: dict[str, list[Speedup]] = {}
    for number, strip in enumerate(group.strips):
        for case in strip.cases:
            for entry in case.ranked:
                if entry.speedup is not None:
                    column = group.cols.index(case.case.cols)
                    speedup = Speedup(column, number, entry.speedup.value, entry.verdict == "same")
                    panels.setdefault(entry.impl, []).append(speedup)
    means = {impl: geomean([speedup.value for speedup in speedups]) for impl, speedups in panels.items()}
    return dict(sorted(panels.items(), key=lambda panel: (-means[panel[0]], panel[0])))


def _fill(axes: Axes, speedups: Sequence[Speedup], shape: tuple[int, int], scale: Normalize) -> None:
    powers = np.full(shape, math.nan)
    for speedup in speedups:
        powers[speedup.strip, speedup.column] = math.log2(speedup.value)
        dark = abs(scale(powers[speedup.strip, speedup.column]) - 0.5) > 0.33
        axes.text(
            speedup.column,
            speedup.strip,
            ("\N{ALMOST EQUAL TO}" if speedup.same else "") + figures.plain_ratio(speedup.value),
            color="white" if dark else INK,
            fontsize=7.5,
            ha="center",
            va="center_baseline",
        )
    across, down = (np.arange(cells + 1) - 0.5 for cells in reversed(shape))
    axes.pcolormesh(across, down, powers, cmap=MAP, norm=scale, edgecolor="white", linewidth=1.5)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
