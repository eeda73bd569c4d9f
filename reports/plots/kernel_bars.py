"""Where the time of one case goes: a bar for each implementation, its kernels in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea, VPacker

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.kernel_spans import Segment, segments
from harness.records.run_records import RunRecord
from harness.records.schema import Kernel
from reports import figures
from reports.kernel_names import display_names, shorten
from reports.labels import entry_label
from reports.plots.style import INK, SOFT, look, shade, sheet, styled, title

SHARED = "#a89878"  # of kernels that implementations of several families launch
SHADES = (0.0, 0.5, -0.4, 0.75, -0.65, 0.25)
GAP = "#f4f4f4"
BAR, LINE, SPACE = 0.23, 0.135, 0.12  # inches: a bar, a line of names below it, and the space to the next bar
LINE_CHARACTERS = 132  # of the names below a bar
OVERLAP = 0.05  # of a kernel's time: less is the scatter of medians
CAPTION = (
    "Below a bar: each kernel with its own time in us. Black tick: the median time by events. Hatched: no kernel runs. "
    "Sand: several libraries launch it."
)
OVERLAPS = "Overlapped: the part of a kernel's time in which an earlier one still runs; the bar has it once."
END_TO_END = "Kernels stand end to end, as when each began is not recorded."
Name = tuple[str, str]  # the short name of a kernel, by which it is coloured, and what is written of it


def kernel_colours(cases: Iterable[CaseComparison]) -> dict[str, str]:
    """One colour for each kernel of a whole file: a shade of the family that launches it.

    Kernels are taken from the longest to the shortest in total; each has the shade that is rarest among its neighbours.
    """
    total_us: dict[str, float] = {}
    families: dict[str, set[str]] = {}
    neighbours: dict[str, set[str]] = {}
    for entry in (entry for case in cases for entry in case.ranked):
        names = {shorten(kernel.name) for kernel in entry.kernels or ()}
        for kernel in entry.kernels or ():
            name = shorten(kernel.name)
            total_us[name] = total_us.get(name, 0.0) + kernel.median_us
            families.setdefault(name, set()).add(look(entry.impl).family)
            neighbours.setdefault(name, set()).update(names - {name})
    colours: dict[str, str] = {}
    for name in sorted(total_us, key=lambda name: (-total_us[name], name)):
        family = families[name].copy().pop() if len(families[name]) == 1 else SHARED
        taken = [colours.get(neighbour) for neighbour in neighbours[name]]
        colours[name] = min((shade(family, lightness) for lightness in SHADES), key=taken.count)
    return colours


@styled
def kernel_bars(case: CaseComparison, run: RunRecord, colours: Mapping[str, str]) -> Figure | None:
    """The ranked implementations of one case, fastest on top; None where none of them has kernels.

    A bar is the time in which any kernel runs, so that an overlap counts once.
    """
    entries = [entry for entry in case.ranked if entry.kernels]
    if not entries:
        return None
    lines = [segments(entry.kernels or ()) for entry in entries]
    names = [_names(entry.kernels or (), line) for entry, line in zip(entries, lines, strict=True)]
    heights = [BAR + LINE * len(of_bar) + SPACE for of_bar in names]
    figure, (axes,) = sheet(title(run, case.case.key), height=sum(heights), caption=_caption(entries))
    middles = [sum(heights[:place]) + BAR / 2 for place in range(len(entries))]
    for middle, entry, line, of_bar in zip(middles, entries, lines, names, strict=True):
        _draw(axes, middle, line, [colours[shorten(kernel.name)] for kernel in entry.kernels or ()])
        _write(axes, middle + BAR / 2 + 0.02, of_bar, colours)
    medians_us = [entry.median_us or 0.0 for entry in entries]
    above, below = ([middle + side for middle in middles] for side in (-0.16, 0.12))
    axes.vlines(medians_us, above, below, color=INK, linewidth=1.4, zorder=4)
    if case.add_us:
        axes.axvline(case.add_us, color=INK, linestyle=(0, (2, 1)), linewidth=1.0, zorder=0.9)
        axes.set_title(f"dashed: same-traffic add, {figures.microseconds(case.add_us)} us", fontsize=8)
    axes.set_yticks(middles, [entry_label(entry).replace(" (", "\n(") for entry in entries], fontsize=9, color=INK)
    axes.set_ylim(sum(heights), -SPACE)
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("us (device time)")
    return figure


def _caption(entries: Sequence[Entry]) -> str:
    kernels = [kernel for entry in entries for kernel in entry.kernels or ()]
    return f"{CAPTION}\n{OVERLAPS if all(kernel.start_us is not None for kernel in kernels) else END_TO_END}"


def _draw(axes: Axes, middle: float, line: Sequence[Segment], colours: Sequence[str]) -> None:
    for gap in (True, False):
        parts = [segment for segment in line if (segment.kernel is None) == gap]
        axes.barh(
            [middle] * len(parts),
            [segment.length_us for segment in parts],
            left=[segment.start_us for segment in parts],
            height=BAR,
            color=[GAP if segment.kernel is None else colours[segment.kernel] for segment in parts],
            edgecolor="#c4c4c4" if gap else "white",
            hatch="/////" if gap else None,
            linewidth=0.0 if gap else 0.6,
        )


def _names(kernels: Sequence[Kernel], line: Sequence[Segment]) -> list[list[Name]]:
    """What is written below a bar, on as many lines as it needs."""
    shown = display_names([kernel.name for kernel in kernels])
    lines: list[list[Name]] = [[]]
    room = LINE_CHARACTERS
    for ordinal, kernel in enumerate(kernels):
        overlapped_us = kernel.median_us - sum(segment.length_us for segment in line if segment.kernel == ordinal)
        text = f"{shown[ordinal]} {figures.microseconds(kernel.median_us)}"
        if overlapped_us >= OVERLAP * kernel.median_us:
            text += f" ({figures.microseconds(overlapped_us)} overlapped)"
        if len(text) + 3 > room:
            lines.append([])
            room = LINE_CHARACTERS
        room -= len(text) + 3
        lines[-1].append((shorten(kernel.name), text))
    return lines


def _write(axes: Axes, top: float, lines: Sequence[Sequence[Name]], colours: Mapping[str, str]) -> None:
    """The names below a bar, each behind a square of its colour."""
    rows: list[Artist] = []
    for names in lines:
        areas: list[Artist] = []
        for name, text in names:
            areas.append(TextArea("\N{BLACK SQUARE}", textprops={"color": colours[name], "size": 7}))
            areas.append(TextArea(text, textprops={"color": SOFT, "size": 7}))
        rows.append(HPacker(children=areas, pad=0, sep=3))
    box = AnnotationBbox(
        VPacker(children=rows, pad=0, sep=1),
        (0, top),
        box_alignment=(0, 1),
        pad=0.1,
        bboxprops={"facecolor": "white", "edgecolor": "none"},  # keeps the line of the add off the names
    )
    box.set_in_layout(False)
    axes.add_artist(box)
