"""How far each gradient is from float64: a panel for each gradient, a line for each implementation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from harness.analysis.outcomes import Outcome, by_impl, norms
from harness.cases import Norm
from harness.cases.tensors import headings as short_names
from harness.records.run_records import RunRecord
from reports.plots.style import BAD, backward, line_style, sheet, styled, title

LEAST_REACH, MOST_REACH = 4.0, 1e4  # of the axis, so that small errors look small, and one fault does not hide the rest
MANY = 100.0  # times the least: from here on powers of ten are numbers enough; below they may be outside
CAPTION = (
    "rho: the rms error against float64 over what cannot be avoided. Open: the fewest rows. Filled: the most; an error "
    "that grows\nwith the rows is of a sum in low precision. Red cross: the gradient is wrong in a case. What is "
    "beyond the axis is at its end.\nOther bits: in so many cases from run to run, or in a new process."
)


def precision(outcomes: Sequence[Outcome], run: RunRecord) -> dict[Norm, Figure]:
    """A figure for each norm whose gradients were checked on the usual inputs."""
    checked = [outcome for outcome in outcomes if outcome.normal and outcome.checked.errors]
    return {norm: _draw([o for o in checked if o.case.norm == norm], outcomes, run) for norm in norms(checked)}


@styled
def _draw(checked: Sequence[Outcome], outcomes: Sequence[Outcome], run: RunRecord) -> Figure:
    norm = checked[0].case.norm
    tensors = short_names(name for outcome in checked for name in outcome.checked.errors)
    rhos = {impl: [e.rho for o in of for e in o.checked.errors.values()] for impl, of in by_impl(checked).items()}
    impls = sorted(rhos, key=lambda impl: (max(rhos[impl]), impl))
    largest = max((rho for of_impl in rhos.values() for rho in of_impl if math.isfinite(rho)), default=1.0)
    smallest = min((rho for of_impl in rhos.values() for rho in of_impl if rho > 0), default=1.0)
    low, high = smallest / 1.3, min(max(1.5 * largest, LEAST_REACH), MOST_REACH)
    figure, drawn = sheet(
        title(
            run,
            f"error and determinism of the gradients, {backward(norm)}",
            *sorted({outcome.case.dtype for outcome in checked}),
        ),
        len(tensors),
        height=0.22 * len(impls) + 0.4,
        caption=CAPTION,
    )
    for axes, (tensor, name) in zip(drawn, tensors.items(), strict=True):
        axes.set_title(name)
        axes.set_xscale("log")
        axes.set_xlim(low, 1.3 * high)  # so that a cross at the end is whole
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < MANY else (1.0,)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.set_xlabel("rho", fontsize=8)
        for place, impl in enumerate(impls):
            _draw_line(axes, place, tensor, by_impl(checked)[impl], (low, high))
    of_norm = by_impl([outcome for outcome in outcomes if outcome.case.norm == norm])
    wrong = {impl: sum(o.status == "wrong" for o in of_norm[impl]) for impl in impls}
    other = {impl: sum(bool(o.checked.differing or o.checked.moved) for o in of_norm[impl]) for impl in impls}
    counts = {
        i: [f"wrong in {wrong[i]}"] * bool(wrong[i]) + [f"other bits in {other[i]}"] * bool(other[i]) for i in impls
    }
    drawn[0].set_yticks(range(len(impls)), [f"{i} ({', '.join(counts[i])})" if counts[i] else i for i in impls])
    for label, impl in zip(drawn[0].get_yticklabels(), impls, strict=True):
        label.set_color(BAD if wrong[impl] else "black")
    drawn[0].set_ylim(len(impls) - 0.4, -0.6)
    return figure


def _draw_line(axes: Axes, place: int, tensor: str, outcomes: Sequence[Outcome], reach: tuple[float, float]) -> None:
    """From the error at the fewest rows to that at the most, over all that lie between."""
    ordered = sorted(outcomes, key=lambda outcome: (outcome.case.rows, outcome.case.cols))
    errors = [outcome.checked.errors[tensor] for outcome in ordered if tensor in outcome.checked.errors]
    if not errors:
        return
    rhos = [min(max(error.rho, reach[0]), reach[1]) for error in errors]  # nan, too, is at the end
    colour = line_style(outcomes[0].impl).colour
    axes.plot(rhos, [place] * len(rhos), color=colour, zorder=2)
    axes.plot(rhos[0], place, "o", color=colour, markerfacecolor="white", markersize=7)
    axes.plot(rhos[-1], place, "o", color=colour, markersize=4)
    wrong = [rho for rho, error in zip(rhos, errors, strict=True) if error.error_class == "wrong"]
    axes.plot(wrong, [place] * len(wrong), "x", color=BAD, markersize=7, markeredgewidth=1.8, zorder=4)
