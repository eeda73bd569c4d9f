"""Names on a plot of kernels: inside a segment where they fit, else beside its bar behind a square of its colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from harness.results.schema import Kernel
from reports import figures
from reports.data.kernel_names import display_names
from reports.data.kernel_spans import Segment
from reports.plots.style import INK, SOFT

# The colours of Okabe and Ito, which the colour-blind tell apart; by ordinal of launch, so a colour means a place.
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00", "#999999")
ON_DARK = ("#0072B2", "#D55E00", "#009E73")
INSIDE_SIZE, BESIDE_SIZE = 7.5, 7.0  # points
MARGIN = 4.0  # points about a name
SQUARE = 4.8  # points
SPACE, APART = 3.0, 5.0  # points after a square beside a bar, and after a name
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
    """What is written of one bar: by ordinal inside it, and beside it, which takes `width` points."""

    inside: dict[int | None, str]
    beside: list[tuple[int | None, str]]
    width: float


def colour(ordinal: int) -> str:
    """The colour of the kernel that is launched at this place."""
    return COLOURS[ordinal % len(COLOURS)]


def name_kernels(axes: Axes, bars: Sequence[Bar]) -> None:
    """Write all names, and widen the axis until those beside the bars have room."""
    width = axes.get_window_extent().width / _pixels(axes)
    reach = axes.get_xlim()[1]
    labels: list[Labels] = []
    for _ in range(5):  # a wider axis makes segments narrower, so that fewer names fit: soon none changes
        labels = [_labels(bar, width, reach) for bar in bars]
        needed = (bar.end_us * width / (width - of.width) for bar, of in zip(bars, labels, strict=True))
        reach = max([reach, *needed])
    axes.set_xlim(0, reach)
    squares: list[tuple[float, int, str]] = []
    for place, (bar, of) in enumerate(zip(bars, labels, strict=True)):
        _write_inside(axes, place, bar, of)
        squares += _write_beside(axes, place, bar, of, reach / width)
    if squares:  # at once: each alone would take as long as a name
        x, y, colours = zip(*squares, strict=True)
        axes.scatter(x, y, s=SQUARE**2, c=colours, marker="s", linewidths=0, clip_on=False)


def _labels(bar: Bar, width: float, reach: float) -> Labels:
    """What is written of one bar on an axis of `width` points that ends at `reach` us."""
    names = display_names([kernel.name for kernel in bar.kernels])
    lengths = {segment.kernel: segment.length_us * width / reach for segment in bar.line}
    inside: dict[int | None, str] = {}
    for ordinal, name in enumerate(names):
        cuts = [name, *(figures.one_line(name, characters) for characters in CUT_INSIDE)]
        room = lengths.get(ordinal, 0.0) - MARGIN
        fitting = next((cut for cut in cuts if text_width(cut, INSIDE_SIZE) <= room), None)
        if fitting is not None:
            inside[ordinal] = fitting
    left = [ordinal for ordinal in range(len(names)) if ordinal not in inside]
    for shown in range(len(left), -1, -1):
        texts: list[tuple[int | None, str]] = [
            (n, f"{figures.one_line(names[n], CUT_BESIDE)} {beside_time(bar, n)}") for n in left[:shown]
        ]
        texts += [(None, f"+ {len(left) - shown} more")] if shown < len(left) else []
        squares = sum(SQUARE + SPACE for n, _ in texts if n is not None)
        taken = squares + sum(text_width(text, BESIDE_SIZE) + APART for _, text in texts) + 2 * SPACE + MARGIN
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
            )


def _write_beside(axes: Axes, place: int, bar: Bar, labels: Labels, us: float) -> list[tuple[float, int, str]]:
    """Write names from where a bar ends, a point being `us` long; gives the squares before them, with their colours."""
    at = bar.end_us + 2 * SPACE * us
    squares: list[tuple[float, int, str]] = []
    for ordinal, text in labels.beside:
        if ordinal is not None:
            squares.append((at + SQUARE / 2 * us, place, colour(ordinal)))
            at += (SQUARE + SPACE) * us
        axes.text(at, place, text, color=SOFT, fontsize=BESIDE_SIZE, va="center_baseline")
        at += (text_width(text, BESIDE_SIZE) + APART) * us
    return squares


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """The width of a text in points."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width)


def _pixels(axes: Axes) -> float:
    """Pixels a point."""
    figure = axes.get_figure(root=True)
    return (figure.dpi if figure else 72) / 72
