"""How far the samples of one case lie from their median: a box for each implementation and for the add."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.joining import Joined, same_traffic_add
from harness.cases import Norm
from harness.cases.traffic import ADD_NAME
from reports import figures
from reports.labels import entry_label
from reports.plots.style import ADD, line_style, sheet, styled, title

CAPTION = (
    "All samples of all processes, each over the median of its implementation. Box: the middle half. Line: from 1 % to "
    "99 % of the samples. Dots: the others."
)


def largest(comparison: Comparison) -> list[CaseComparison]:
    """The case of each norm with the most elements, of those that have a ranked implementation on the usual inputs."""
    cases: dict[Norm, CaseComparison] = {}
    for case in comparison.cases:
        if case.ranked and case.case.inputs == "normal":
            best = cases.setdefault(case.case.norm, case)
            if case.case.rows * case.case.cols > best.case.rows * best.case.cols:
                cases[case.case.norm] = case
    return list(cases.values())


@styled
def spread(case: CaseComparison, comparison: Comparison) -> Figure:
    """Percent off the median, a row for each ranked implementation, fastest on top, below that of the add."""
    shown = {entry_label(entry): (line_style(entry.impl), case.joined[entry.impl, "impl"]) for entry in case.ranked}
    add = same_traffic_add(case.joined)
    if add is not None and add.is_rankable:
        shown = {ADD_NAME: (ADD, add), **shown}
    joined = [of for _, of in shown.values()]
    heading = title(comparison.run, f"spread of the samples of {case.case.key}")
    figure, (axes,) = sheet(heading, height=0.3 * len(shown), caption=CAPTION)
    drawn = axes.boxplot(
        [100 * (samples_us / np.median(samples_us) - 1) for samples_us in map(_samples_us, joined)],
        orientation="horizontal",
        whis=(1, 99),
        widths=0.6,
        patch_artist=True,
        medianprops={"color": "white"},
        flierprops={"marker": ".", "markersize": 3},
        tick_labels=[
            f"{name}, {figures.microseconds(of.median_us)} us" for name, of in zip(shown, joined, strict=True)
        ],
    )
    for place, (its, _) in enumerate(shown.values()):
        drawn["boxes"][place].set(facecolor=its.colour, edgecolor=its.colour)
        drawn["fliers"][place].set(markeredgecolor=its.colour)
        for line in (*drawn["whiskers"][2 * place :][:2], *drawn["caps"][2 * place :][:2]):
            line.set_color(its.colour)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("% off the median")
    return figure


def _samples_us(joined: Joined) -> NDArray[np.float64]:
    return np.concatenate([np.asarray(timing.samples_us) for timing in joined.timings])
