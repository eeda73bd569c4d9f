"""Names on a plot of kernels: inside a segment where they fit, else beside its bar behind a square of its colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea
from matplotlib.patheffects import withStroke

from harness.records import Kernel
from reports import figures
from reports.kernel_names import display_names
from reports.kernel_spans import Segment

# The colours of Okabe and Ito, which the colour-blind tell apart; by ordinal of launch, so a colour means a place.
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00", "#999999")
ON_DARK = ("#0072B2", "#D55E00", "#009E73")
INK, SOFT = "#222222", "#555555"
INSIDE_SIZE, BESIDE_SIZE = 7.5, 7.0  # points
MARGIN = 6.0  # pixels about a name
SQUARE = "\N{BLACK SQUARE}"
SPACE = 3.0  # points between squares and names beside a bar, and before the first
MOST_BESIDE = 0.5  # of the axis, for the names beside one bar; the rest are counted
CUT_INSIDE = (24, 16)  # characters to which a name is cut to fit its segment
CUT_BESIDE = 28
OVERLAP = 0.05  # of a kernel's time: less is the scatter of medians


@dataclass(frozen=True)
class Bar:
    """One implementation: its kernels, where they lie on the line of time, and the median by events."""

    kernels: Sequence[Kernel]
    line: Sequence[Segment]
    median_us: float

    @property
    def end_us(self) -> float:
        """Where the bar or its tick ends."""
        return max([segment.start_us + segment.length_us for segment in self.line] + [self.median_us])


@dataclass(frozen=True)
class Labels:
    """What is written of one bar: by ordinal inside it, and beside it, which takes `width` pixels."""

    inside: dict[int | None, str]
    beside: list[tuple[int | None, str]]
    width: float


def colour(ordinal: int) -> str:
    """The colour of the kernel that is launched at this place."""
    return COLOURS[ordinal % len(COLOURS)]


def name_kernels(axes: Axes, bars: Sequence[Bar]) -> None:
    """Write all names, and widen the axis until those beside the bars have room; the layout is fixed thereafter."""
    figure = axes.get_figure(root=True)
    if figure is None or not bars:
        return
    figure.draw_without_rendering()  # lays out, so that the axes' width in pixels is known
    figure.set_layout_engine("none")
    width = axes.get_window_extent().width
    reach = axes.get_xlim()[1]
    labels: list[Labels] = []
    for _ in range(5):  # a wider axis makes segments narrower, so that fewer names fit: soon none changes
        labels = [_labels(axes, bar, width, reach) for bar in bars]
        needed = (bar.end_us * width / (width - of.width) for bar, of in zip(bars, labels, strict=True))
        reach = max([reach, *needed])
    axes.set_xlim(0, reach)
    for place, (bar, of) in enumerate(zip(bars, labels, strict=True)):
        _write_inside(axes, place, bar, of)
        _write_beside(axes, place, bar, of)


def _labels(axes: Axes, bar: Bar, width: float, reach: float) -> Labels:
    """What is written of one bar on an axis of `width` pixels that ends at `reach` us."""
    names = display_names([kernel.name for kernel in bar.kernels])
    lengths = {segment.kernel: segment.length_us * width / reach for segment in bar.line}
    inside: dict[int | None, str] = {}
    for ordinal, name in enumerate(names):
        cuts = [name, *(figures.one_line(name, characters) for characters in CUT_INSIDE)]
        room = lengths.get(ordinal, 0.0) - MARGIN
        fitting = next((cut for cut in cuts if _width(axes, cut, INSIDE_SIZE) <= room), None)
        if fitting is not None:
            inside[ordinal] = fitting
    left = [ordinal for ordinal in range(len(names)) if ordinal not in inside]
    figure = axes.get_figure(root=True)
    gap = SPACE / 72 * (figure.dpi if figure else 72)
    for shown in range(len(left), -1, -1):
        texts: list[tuple[int | None, str]] = [
            (n, f"{figures.one_line(names[n], CUT_BESIDE)} {beside_time(bar, n)}") for n in left[:shown]
        ]
        texts += [(None, f"+ {len(left) - shown} more")] if shown < len(left) else []
        written = [text for _, text in texts] + [SQUARE for n, _ in texts if n is not None]
        taken = sum(_width(axes, text, BESIDE_SIZE) + gap for text in written) + 2 * gap + MARGIN
        if taken <= width * max(MOST_BESIDE, 1 - bar.end_us / reach):
            return Labels(inside, texts, taken)
    return Labels(inside, [], 0.0)


def beside_time(bar: Bar, ordinal: int) -> str:
    """What a kernel adds to its bar and, where it overlaps with others, the time that it takes itself."""
    own_us = bar.kernels[ordinal].median_us
    added_us = sum(segment.length_us for segment in bar.line if segment.kernel == ordinal)
    text = figures.microseconds(added_us)
    return text if own_us - added_us < OVERLAP * own_us else f"{text} of its {figures.microseconds(own_us)}"


def _write_inside(axes: Axes, place: int, bar: Bar, labels: Labels) -> None:
    for segment in bar.line:
        if segment.kernel is not None and segment.kernel in labels.inside:
            ground = colour(segment.kernel)
            axes.text(
                segment.start_us + segment.length_us / 2,
                place,
                labels.inside[segment.kernel],
                color="white" if ground in ON_DARK else INK,
                fontsize=INSIDE_SIZE,
                ha="center",
                va="center_baseline",
                zorder=5,
                path_effects=[withStroke(linewidth=2.5, foreground=ground)],  # keeps the dashed line off the letters
            )


def _write_beside(axes: Axes, place: int, bar: Bar, labels: Labels) -> None:
    pieces: list[TextArea] = []
    for ordinal, text in labels.beside:
        if ordinal is not None:
            look = {"color": colour(ordinal), "fontsize": BESIDE_SIZE}
            pieces.append(TextArea(SQUARE, textprops=look))
        pieces.append(TextArea(text, textprops={"color": SOFT, "fontsize": BESIDE_SIZE}))
    if pieces:
        box = AnnotationBbox(
            HPacker(children=[*pieces], pad=0, sep=SPACE, align="center"),
            (bar.end_us, place),
            xybox=(2 * SPACE, 0),
            boxcoords="offset points",
            box_alignment=(0, 0.5),
            frameon=False,
        )
        axes.add_artist(box)


def _width(axes: Axes, text: str, size: float) -> float:
    """The width of a text in pixels."""
    figure = axes.get_figure(root=True)
    written = axes.text(0, 0, text, fontsize=size)
    extent = written.get_window_extent(cast(FigureCanvasAgg, figure.canvas).get_renderer() if figure else None)
    written.remove()
    return extent.width
