"""Where the time of one case goes: a bar for each implementation, its kernels in the order in which they run."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.kernel_spans import Segment, segments
from harness.records.run_records import RunRecord
from harness.records.schema import Kernel
from reports import figures
from reports.kernel_names import display_names
from reports.labels import entry_label
from reports.plots.style import INK, SOFT, line_style, shade, sheet, styled, title

SHADES = (0.0, 0.5, -0.4, 0.75, -0.65, 0.25)  # of the kernels of a bar, in the order of their launch
GAP = "#f4f4f4"
BAR, LINE, SPACE = 0.23, 0.135, 0.12  # inches: a bar, a line of names below it, and the space to the next bar
LINE_CHARACTERS = 132  # of the names below a bar
OVERLAP = 0.05  # of a kernel's time: less is the scatter of medians
CAPTION = (
    "Below a bar: its kernels in the order of launch, each with its own time in us. Black tick: the median time by "
    "events. Hatched: no kernel runs."
)
OVERLAPS = "Overlapped: the part of a kernel's time in which an earlier one still runs; the bar has it once."
END_TO_END = "Kernels stand end to end, as when each began is not recorded."


@styled
def kernel_bars(case: CaseComparison, run: RunRecord) -> Figure | None:
    """The ranked implementations of one case, fastest on top; None where none of them has kernels.

    A bar is the time in which any kernel runs, so that an overlap counts once.
    """
    entries = [entry for entry in case.ranked if entry.kernels]
    if not entries:
        return None
    bars = [segments(entry.kernels or ()) for entry in entries]
    names = [_names(entry.kernels or (), bar) for entry, bar in zip(entries, bars, strict=True)]
    heights = [BAR + LINE * len(lines) + SPACE for lines in names]
    begins = all(kernel.start_us is not None for entry in entries for kernel in entry.kernels or ())
    caption = f"{CAPTION}\n{OVERLAPS if begins else END_TO_END}"
    figure, (axes,) = sheet(title(run, f"kernels of {case.case.key}"), height=sum(heights), caption=caption)
    middles = [sum(heights[:place]) + BAR / 2 for place in range(len(entries))]
    for middle, entry, bar, lines in zip(middles, entries, bars, names, strict=True):
        _draw(axes, middle, bar, entry)
        under = (0, middle + BAR / 2 + 0.02)
        background = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # keeps the line of the add off the names
        axes.text(*under, "\n".join(lines), color=SOFT, fontsize=7, va="top", bbox=background, in_layout=False)
    axes.vlines(
        [entry.median_us or 0.0 for entry in entries],
        [middle - 0.16 for middle in middles],
        [middle + 0.12 for middle in middles],
        color=INK,
        linewidth=1.4,
        zorder=4,
    )
    if case.add_us:
        axes.axvline(case.add_us, color=INK, linestyle=(0, (2, 1)), linewidth=1.0, zorder=0.9)
        axes.set_title(f"dashed: same-traffic add, {figures.microseconds(case.add_us)} us", fontsize=8)
    axes.set_yticks(middles, [entry_label(entry).replace(" (", "\n(") for entry in entries], fontsize=9)
    axes.set_ylim(sum(heights), -SPACE)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("us (device time)")
    return figure


def _draw(axes: Axes, middle: float, bar: Sequence[Segment], entry: Entry) -> None:
    for segment in bar:
        gap = segment.kernel is None
        colour = GAP if gap else shade(line_style(entry.impl).family, SHADES[(segment.kernel or 0) % len(SHADES)])
        edge: dict[str, Any] = (
            {"edgecolor": "#c4c4c4", "hatch": "/////", "linewidth": 0.0} if gap else {"edgecolor": "white"}
        )
        axes.barh(middle, segment.length_us, left=segment.start_us, height=BAR, color=colour, **edge)


def _names(kernels: Sequence[Kernel], bar: Sequence[Segment]) -> list[str]:
    """What is written below a bar, on as many lines as it needs; a name keeps its time on its line."""
    texts: list[str] = []
    for number, (name, kernel) in enumerate(zip(display_names([k.name for k in kernels]), kernels, strict=True)):
        overlapped_us = kernel.median_us - sum(segment.length_us for segment in bar if segment.kernel == number)
        text = f"{name} {figures.microseconds(kernel.median_us)}"
        if overlapped_us >= OVERLAP * kernel.median_us:
            text += f" ({figures.microseconds(overlapped_us)} overlapped)"
        texts.append(text.replace(" ", "\N{NO-BREAK SPACE}"))
    lines = textwrap.wrap(" + ".join(texts), LINE_CHARACTERS, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
