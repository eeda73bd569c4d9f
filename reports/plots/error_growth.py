"""How the error of dweight grows with the rows: a panel for each hidden size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from harness.analysis.outcomes import Outcome
from harness.cases import Norm
from harness.records.run_records import RunRecord
from reports.parts.precision import Slope, slopes
from reports.plots.style import INK, backward, line_style, sheet, styled, title

LEAST_FACTOR = 5.0  # from the left end of the axis to its right, so that small differences look small
MANY_FACTOR = 100.0  # from here on powers of ten are numbers enough; below they may be outside
CAPTION = (
    "Relative rms error against float64, on the usual inputs. Open: the fewest rows. Filled: the most.\n"
    "Number: the slope of log(error) against log(rows). 0: the sum is kept in fp32. 0.5: it is kept in low precision, "
    "and the error grows with the square root of the rows."
)


def precision(outcomes: Iterable[Outcome], run: RunRecord) -> dict[Norm, Figure]:
    """A figure for each norm that has columns with three numbers of rows."""
    by_norm: dict[Norm, list[Slope]] = {}
    for slope in slopes(outcomes):
        by_norm.setdefault(slope.norm, []).append(slope)
    return {norm: _draw(norm, lines, run) for norm, lines in by_norm.items()}


@styled
def _draw(norm: Norm, lines: Sequence[Slope], run: RunRecord) -> Figure:
    panels: dict[tuple[str, int], dict[str, Slope]] = {}
    for line in lines:
        panels.setdefault((line.variant, line.cols), {})[line.impl] = line
    variants = sorted({line.variant for line in lines})
    worst = {line.impl: max(other.points[-1][1] for other in lines if other.impl == line.impl) for line in lines}
    impls = sorted(worst, key=lambda impl: (worst[impl], impl))
    heading = title(run, f"error of dweight, {backward(norm)}", *variants)
    figure, drawn = sheet(heading, len(panels), height=0.22 * len(impls) + 0.4, caption=CAPTION)
    for axes, ((variant, cols), slope_of) in zip(drawn, sorted(panels.items()), strict=True):
        rows = next(iter(slope_of.values())).points
        name = f"{cols} columns, {rows[0][0]} to {rows[-1][0]} rows"
        axes.set_title(name + (f", {variant}" if len(variants) > 1 else ""))
        for place, impl in enumerate(impls):
            if impl in slope_of:
                _draw_line(axes, place, slope_of[impl])
    errors = [error for line in lines for _, error in line.points]
    for axes in drawn:
        _scale(axes, min(errors) / 1.3, max(1.8 * max(errors), LEAST_FACTOR * min(errors)))
    drawn[0].set_yticks(range(len(impls)), impls)
    drawn[0].set_ylim(len(impls) - 0.4, -0.6)
    return figure


def _scale(axes: Axes, low: float, high: float) -> None:
    """A logarithmic axis with numbers at 1, 2 and 5, or where it is long at powers of ten."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < MANY_FACTOR else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}".replace("e-0", "e-")))


def _draw_line(axes: Axes, place: int, line: Slope) -> None:
    errors = [error for _, error in line.points]
    colour = line_style(line.impl).colour
    axes.plot(errors, [place] * len(errors), color=colour, zorder=2)
    axes.plot(errors[0], place, "o", color=colour, markerfacecolor="white", markersize=7)
    axes.plot(errors[-1], place, "o", color=colour, markersize=4)
    text = f"{round(line.power, 2) + 0.0:.2f}"  # not -0.00
    axes.annotate(text, (max(errors), place), (7, 0), textcoords="offset points", va="center", fontsize=7, color=INK)
