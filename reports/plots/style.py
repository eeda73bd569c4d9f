"""One look for all plots: the colour and mark of an implementation, the page it is drawn on, how it is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from zlib import crc32

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.cases import Norm
from harness.results.schema import RunRecord
from reports.plots.svg import compact

WIDTH = 9.5  # inches: what is 9 points here is 11 pixels at the width of a pull request
DPI = 120
FORMATS = ("svg", "png")
INK, SOFT, FAINT, GROUND = "#222222", "#555555", "#b8b8b8", "#e6e6e6"
# The colours of Okabe and Ito, which the colour-blind tell apart, and a wine of Tol's in place of their pale yellow.
ORANGE, SKY, GREEN, PINK, BLUE, RED = "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00"
WINE, GREY = "#882255", "#8c8c8c"
SOLID, DASHED, DOTTED, MIXED = "-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2))


@dataclass(frozen=True)
class Look:
    """How an implementation is drawn, in every plot of every file."""

    colour: str
    marker: str
    dashes: Any = SOLID


ADD = Look(INK, "")
# A colour a family; its members differ by marker and dashes, as they often run into each other.
_KNOWN = {
    "triton-inhouse": Look(RED, "o"),
    "cudnn": Look(BLUE, "s"),
    "quack": Look(GREEN, "^"),
    "quack-tuned": Look(GREEN, ">", DASHED),
    "torch-compiled": Look(ORANGE, "D"),
    "torch-compiled-autotune": Look(ORANGE, "P", DASHED),
    "torch-compiled-nonstrict": Look(ORANGE, "X", DOTTED),
    "torch-compiled-unmixed": Look(ORANGE, "d", MIXED),
    "liger": Look(PINK, "v"),
    "liger-gemma": Look(PINK, "<", DASHED),
    "apex-fast": Look(SKY, "p"),
    "apex-fast-mem": Look(SKY, "h", DASHED),
    "apex-fused": Look(WINE, "*"),
    "apex-fused-mem": Look(WINE, "P", DASHED),
    "torch-eager": Look(GREY, "s"),
}
_OTHERS = ("#332288", "#44AA99", "#999933", "#AA4499", "#661100", "#6699CC")  # more of Tol's
_MARKERS = ("o", "^", "D", "v", "P", "X")

# Text stays text: small, and it can be searched. Verdana is as wide as DejaVu Sans, where that is not installed.
PNG: Any = {"text.hinting": "none"}  # as wide as its outlines, by which kernels are named, and faster
SVG: Any = {
    "svg.hashsalt": "normbwd",
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
}
NORMS: dict[Norm, str] = {"rms": "RMSNorm", "layer": "LayerNorm"}

TITLE, BELOW, LINE = 0.62, 0.55, 0.19  # inches: above the panels, for the label of their axis, a line of text
LEFT, RIGHT = 0.72, 0.12
KEY_COLUMNS = 5


def look(impl: str) -> Look:
    """The look of an implementation; of one that is not this project's, by its name alone, so that it stays."""
    number = crc32(impl.encode())
    other = Look(_OTHERS[number % len(_OTHERS)], _MARKERS[number // len(_OTHERS) % len(_MARKERS)], MIXED)
    return _KNOWN.get(impl, other)


def title(run: RunRecord, *what: str) -> str:
    """What is drawn, on which device and when."""
    return ", ".join((run.device.name, *what, run.started_at[:10]))


def backward(norm: Norm) -> str:
    """The backward of a norm as a title says it."""
    return f"{NORMS[norm]} backward"


@dataclass(frozen=True)
class Page:
    """A figure of equal panels under a title, over a key and a caption, all measured in inches."""

    figure: Figure
    panels: list[Axes]
    across: int


def page(
    heading: str,
    panels: int,
    *,
    across: int = 3,
    height: float = 3.0,
    key: Sequence[Line2D] = (),
    caption: Sequence[str] = (),
    between: tuple[float, float] = (0.14, 0.75),
    left: float = LEFT,
    right: float = RIGHT,
) -> Page:
    """Lay out a page; the panels share their vertical axis where they stand side by side.

    Laid out by hand: matplotlib's engines take as long as the drawing, and know no caption below a key.
    """
    across = min(across, panels)
    down = -(-panels // across)
    key_lines = -(-len(key) // KEY_COLUMNS)
    foot = BELOW + LINE * (key_lines + len(caption)) + (0.08 if key or caption else 0)
    total = TITLE + down * height + (down - 1) * between[1] + foot
    figure = Figure(figsize=(WIDTH, total), dpi=DPI)
    FigureCanvasAgg(figure)
    width = (WIDTH - left - right - (across - 1) * between[0]) / across
    drawn: list[Axes] = []
    for place in range(panels):
        below, beside = divmod(place, across)
        start = left + beside * (width + between[0])
        bottom = total - TITLE - (below + 1) * height - below * between[1]
        drawn.append(figure.add_axes((start / WIDTH, bottom / total, width / WIDTH, height / total)))
        _frame(drawn[-1])
    figure.text(left / WIDTH, 1 - 0.1 / total, heading, fontsize=11, color=INK, va="top")
    for line, text in enumerate(reversed(caption)):
        figure.text(left / WIDTH, (0.07 + LINE * line) / total, text, fontsize=8, color=SOFT, va="bottom")
    if key:
        _write_key(figure, key, (0.1 + LINE * len(caption)) / total)
    return Page(figure, drawn, across)


def key_line(name: str, drawn: Look, **more: Any) -> Line2D:
    """A line of the key."""
    return Line2D([], [], **style(drawn), label=name, **more)


def style(drawn: Look) -> dict[str, Any]:
    """What matplotlib calls a look; white about a marker parts it from the lines that it stands on."""
    return {
        "color": drawn.colour,
        "linestyle": drawn.dashes,
        "linewidth": 1.5,
        "marker": drawn.marker or None,
        "markersize": 7.0 if drawn.marker == "*" else 5.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
    }


def save(figure: Figure, path: Path) -> None:
    """Write a figure as its path's ending says, the same bytes for the same figure."""
    if path.suffix != ".svg":
        with rc_context(PNG):
            figure.savefig(path, dpi=DPI, metadata={"Software": None}, pil_kwargs={"compress_level": 3})
        return
    path.write_text(as_svg(figure), encoding="utf-8", newline="\n")


def as_svg(figure: Figure) -> str:
    """The figure as svg text, the same for the same figure."""
    drawn = StringIO()
    with rc_context(SVG):
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return compact(drawn.getvalue())


def _frame(axes: Axes) -> None:
    axes.tick_params(colors=SOFT, labelsize=8, length=3)
    axes.grid(color=GROUND, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(FAINT)


def _write_key(figure: Figure, key: Sequence[Line2D], bottom: float) -> None:
    figure.legend(
        handles=key,
        loc="lower left",
        bbox_to_anchor=(LEFT / WIDTH, bottom, 1 - (LEFT + RIGHT) / WIDTH, 0.1),
        mode="expand",
        ncols=min(KEY_COLUMNS, len(key)),
        fontsize=8,
        labelcolor=INK,
        frameon=False,
        handlelength=2.6,
        borderaxespad=0.0,
        borderpad=0.0,
        labelspacing=0.35,
    )
