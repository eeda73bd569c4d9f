"""Speedups over the baseline for every case: a row for each implementation, a cell for each case."""

from __future__ import annotations

import math

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.statistics import geomean
from reports import figures
from reports.plots.style import BAD, INK, backward, sheet, styled, title
from reports.size_groups import Group

MAP = colormaps["PuOr_r"].resampled(32)  # orange is faster, purple slower: the colour-blind tell them apart
CELL, BAR_WIDTH = 0.26, 0.14  # inches: the height of a cell, and the width of the scale
FEWEST, MOST = 6, 16  # cells across
# Ends of the scale, as powers of two: at least 1.5, so that small differences look small, and at most 4, so that one
# case of a fallback does not pale the others.
LEAST_REACH, MOST_REACH = math.log2(1.5), 2.0
CAPTION = (
    "\N{ALMOST EQUAL TO}: not told from 1, as the 95 % interval reaches into the A/A band. Red: what failed. "
    "Blank: refused, not ranked, or not measured. Best geometric mean first."
)


@styled
def speedups(group: Group, comparison: Comparison) -> Figure | None:
    """A row for each implementation but the baseline, best first; None where no implementation has a speedup."""
    cases = [case for strip in group.strips.values() for case in strip]
    impls = _best_first(cases, comparison.baseline)
    reach = max((abs(math.log2(e.speedup.value)) for case in cases for e in case.ranked if e.speedup), default=None)
    if reach is None:
        return None
    reach = min(max(reach, LEAST_REACH), MOST_REACH)
    scale = Normalize(-reach, reach, clip=True)
    down = -(-len(cases) // MOST)
    across = max(-(-len(cases) // down), FEWEST)
    heading = title(comparison.run, f"speedup of the {backward(group.norm)} over {comparison.baseline}", group.variant)
    height = CELL * len(impls) + 0.45  # the names of cases stand aslant
    figure, drawn = sheet(heading, down, height=height, across=1, caption=CAPTION)
    for number, axes in enumerate(drawn):
        _fill(axes, cases[number * across : (number + 1) * across], impls, scale)
        axes.set_xlim(-0.5, across - 0.5)
    drawn[0].set_yticks(range(len(impls)), impls)
    drawn[0].invert_yaxis()
    ticks = [power / 2 for power in range(math.ceil(-2 * reach), math.floor(2 * reach) + 1)]
    bar = figure.colorbar(ScalarMappable(scale, MAP), ax=drawn, aspect=down * height / BAR_WIDTH, ticks=ticks, pad=0.01)
    bar.ax.set_yticklabels([f"{2**tick:.2g}" for tick in ticks])
    bar.outline.set_visible(False)
    return figure


def _best_first(cases: list[CaseComparison], baseline: str) -> list[str]:
    """The implementations that have a speedup, by their geometric mean, and then those that failed alone."""
    values: dict[str, list[float]] = {}
    for case in cases:
        for entry in case.of("ranked", "failed"):
            values.setdefault(entry.impl, []).extend([entry.speedup.value] if entry.speedup else [])
    values.pop(baseline, None)
    return sorted(values, key=lambda impl: (-geomean(values[impl]) if values[impl] else 0.0, impl))


def _fill(axes: Axes, cases: list[CaseComparison], impls: list[str], scale: Normalize) -> None:
    powers = np.full((len(impls), len(cases)), math.nan)
    for (down, across), _ in np.ndenumerate(powers):
        entry = cases[across].entry(impls[down])
        if entry and entry.standing == "failed":
            axes.text(across, down, entry.status, color=BAD, fontsize=6, ha="center", va="center_baseline")
        elif entry and entry.standing == "ranked" and entry.speedup:
            powers[down, across] = math.log2(entry.speedup.value)
            colour = "white" if abs(scale(powers[down, across]) - 0.5) > 0.33 else INK
            text = ("\N{ALMOST EQUAL TO}" if entry.verdict == "same" else "") + figures.plain_ratio(entry.speedup.value)
            axes.text(across, down, text, color=colour, fontsize=7.5, ha="center", va="center_baseline")
    edges = [np.arange(cells + 1) - 0.5 for cells in reversed(powers.shape)]
    axes.pcolormesh(*edges, powers, cmap=MAP, norm=scale, edgecolor="white", linewidth=1.5)
    names = [f"{case.case.rows}x{case.case.cols}" for case in cases]
    axes.set_xticks(range(len(cases)), names, fontsize=7, rotation=30, ha="right", rotation_mode="anchor")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
