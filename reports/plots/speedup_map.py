"""Speedups over the baseline for every size, drawn: a panel an implementation, a cell a case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from reports import figures
from reports.data.comparison import Comparison
from reports.data.entries import Entry
from reports.data.size_groups import Group
from reports.plots.style import INK, SOFT, WIDTH, backward, page, title

MAP = "PuOr_r"  # orange is faster, purple slower, white 1: the colour-blind tell them apart
HATCHES = "#888888"
WIDE, HIGH = 0.97, 0.94  # of the way to the next cell
CELL = 0.3  # inches that a cell is high
SOME, MANY = 6, 9  # columns, for which labels are smaller, and panels fewer
LEFT, RIGHT, BAR = 1.15, 0.6, 0.14  # inches: for the names of strips, for the scale, and how wide that is
STEPS = 32
# The scale goes at least from 1/1.5 to 1.5, so that small differences look small, and at most from 1/4 to 4, so that
# one case of a fallback does not pale the others; the value stands in the cell.
LEAST_REACH, MOST_REACH = math.log2(1.5), 2.0
DARK = 0.5  # luminance below which a cell's value is written in white


@dataclass(frozen=True)
class Cell:
    """A speedup, where it stands in its panel, and whether it cannot be told from 1."""

    column: int
    strip: int
    value: float
    same: bool


def speedups(group: Group, comparison: Comparison) -> Figure | None:
    """A panel for each implementation but the baseline, best first; None where nobody has a speedup."""
    panels = _by_impl(group)
    if not panels:
        return None
    strips, cols = group.strips, group.cols
    caption = [
        "Hatched: not told from 1 (the 95 % interval reaches into the A/A band). Blank: not ranked, or not measured. "
        "Best geometric mean first."
    ]
    what = f"speedup of the {backward(group.norm)} over {comparison.baseline}"
    sheet = page(
        title(comparison.run, what, group.variant),
        len(panels),
        across=3 if len(cols) <= MANY else 2,
        height=CELL * len(strips),
        caption=caption,
        between=(0.14, 0.42),
        left=LEFT,
        right=RIGHT,
    )
    reach = max(abs(math.log2(cell.value)) for cells in panels.values() for cell in cells)
    reach = min(max(reach, LEAST_REACH), MOST_REACH)
    scale = Normalize(-reach, reach, clip=True)
    names = [strip.name for strip in strips]
    for place, (axes, (impl, cells)) in enumerate(zip(sheet.panels, panels.items(), strict=True)):
        _fill(axes, cells, (len(strips), len(cols)), scale)
        axes.set_title(impl, fontsize=9, color=INK, loc="left", pad=3)
        axes.set_yticks(range(len(strips)), names if place % sheet.across == 0 else [])
        last = place + sheet.across >= len(panels)
        axes.set_xticks(
            range(len(cols)), [str(each) for each in cols] if last else [], fontsize=7 if len(cols) <= SOME else 6
        )
        if last:
            axes.set_xlabel("columns (hidden size)", color=SOFT, fontsize=8)
    _draw_scale(sheet.figure, sheet.panels, scale)
    return sheet.figure


def _by_impl(group: Group) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for number, strip in enumerate(group.strips):
        for case in strip.cases:
            for entry in case.ranked:
                if entry.speedup is not None:
                    cell = _cell(entry, entry.speedup.value, group.cols.index(case.case.cols), number)
                    found.setdefault(entry.impl, []).append(cell)
    return dict(sorted(found.items(), key=lambda each: (-_mean_log(each[1]), each[0])))


def _cell(entry: Entry, value: float, column: int, strip: int) -> Cell:
    return Cell(column, strip, value, entry.verdict == "same")


def _mean_log(cells: Sequence[Cell]) -> float:
    return math.fsum(math.log(cell.value) for cell in cells) / len(cells)


def _fill(axes: Axes, cells: Sequence[Cell], shape: tuple[int, int], scale: Normalize) -> None:
    strips, columns = shape
    for cell in cells:
        colour = colormaps[MAP](scale(math.log2(cell.value)))
        ink = "white" if _luminance(colour) < DARK else INK
        axes.add_artist(
            Rectangle(
                (cell.column - WIDE / 2, cell.strip - HIGH / 2),
                WIDE,
                HIGH,
                facecolor=colour,
                edgecolor=HATCHES,
                hatch="//////" if cell.same else None,
                linewidth=0.8 if cell.same else 0.0,
                clip_on=False,
            )
        )
        box = {"facecolor": colour, "edgecolor": "none", "pad": 0.6} if cell.same else None  # keeps hatches off digits
        text = figures.plain_ratio(cell.value)
        axes.text(cell.column, cell.strip, text, color=ink, fontsize=7.5, ha="center", va="center_baseline", bbox=box)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(strips - 0.5, -0.5)
    axes.grid(visible=False)
    axes.tick_params(length=0, pad=3)
    axes.spines[:].set_visible(False)


def _luminance(colour: Sequence[float]) -> float:
    red, green, blue, *_ = colour
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _draw_scale(figure: Figure, panels: Sequence[Axes], scale: Normalize) -> None:
    """The colours and what they mean, beside the panels."""
    low, high = scale.vmin or 0.0, scale.vmax or 0.0
    bottom, top = panels[-1].get_position().y0, panels[0].get_position().y1
    axes = figure.add_axes((1 - (RIGHT - 0.12) / WIDTH, bottom, BAR / WIDTH, top - bottom))
    step = (high - low) / STEPS
    for number in range(STEPS):
        begin = low + number * step
        colour = colormaps[MAP](scale(begin + step / 2))
        axes.add_artist(Rectangle((0, begin), 1, step, facecolor=colour, edgecolor=colour, linewidth=0.3))
    ticks = [power / 2 for power in range(math.ceil(2 * low), math.floor(2 * high) + 1)]
    axes.set_xlim(0, 1)
    axes.set_ylim(low, high)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.set_yticks(ticks, [f"{2**tick:.2g}" for tick in ticks])
    axes.tick_params(colors=SOFT, labelsize=8, length=2)
    axes.spines[:].set_visible(False)
