"""One style for all plots: the colour and marker of an implementation, the figure it is drawn in, how it is saved."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from zlib import crc32

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from harness.cases import Norm
from harness.cases.unfused import WITH_TORCH
from harness.defaults import BASELINE, OWN_IMPL
from harness.records.run_records import RunRecord
from reports.labels import NORMS

WIDTH = 9.5  # inches: 9 points here are 11 pixels at the width of a pull request
FORMATS = ("svg", "png")
INK, SOFT, GROUND = "#222222", "#555555", "#e6e6e6"
# The colours of Okabe and Ito, which the colour-blind tell apart, and Tol's wine in place of their pale yellow.
ORANGE, SKY, GREEN, PINK, BLUE, RED = "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00"
WINE, GREY = "#882255", "#8c8c8c"
_OTHERS = ("#332288", "#44AA99", "#999933", "#AA4499", "#661100", "#6699CC")  # more of Tol's
SOLID, DASHED, DOTTED, MIXED = "-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2))
_MARKERS = ("o", "^", "D", "v", "P", "X")
# A family has one colour; its members are shades of it, and differ in marker and dashes too.
FAMILIES: dict[str, tuple[str, ...]] = {
    RED: (OWN_IMPL, f"{OWN_IMPL}-margin8", f"{OWN_IMPL}-margin32"),
    BLUE: ("cudnn",),
    GREEN: ("quack", "quack-tuned", "quack-compiled", "quack-per-head"),
    ORANGE: ("torch-compiled", "torch-compiled-autotune", "torch-compiled-nonstrict", "torch-compiled-unmixed"),
    PINK: ("liger", "liger-gemma", "liger-triton", "liger-cutedsl"),
    SKY: ("apex-fast", "apex-fast-mem"),
    WINE: ("apex-fused", "apex-fused-mem"),
    GREY: (BASELINE,),
}
SEED = 14  # with which the other implementations of this project all differ
_MEMBERS = ((0.0, "o", SOLID), (-0.45, "s", DASHED), (0.45, "^", DOTTED), (-0.7, "D", MIXED))

styled = rc_context(
    {
        "axes.labelsize": 9,
        "axes.titlelocation": "left",
        "axes.titlesize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GROUND,
        "grid.linewidth": 0.6,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "xtick.minor.bottom": False,
        "ytick.minor.left": False,
        "hatch.linewidth": 0.6,
        "legend.fontsize": 8,
        "legend.frameon": False,
        "text.hinting": "none",  # the same widths on every machine
        "text.parse_math": False,  # a dollar in a name is a dollar
        "svg.hashsalt": "normbwd",
        "svg.fonttype": "none",  # text stays text: small, and it can be searched
        "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],  # Verdana is as wide
    }
)


@dataclass(frozen=True)
class LineStyle:
    """How an implementation is drawn, in every plot of every file; `family` is the colour that its family shares."""

    family: str
    colour: str
    marker: str
    dashes: Any = SOLID

    @property
    def line(self) -> dict[str, Any]:
        """What matplotlib's `plot` takes; white about a marker parts it from the lines beneath."""
        return {
            "color": self.colour,
            "linestyle": self.dashes,
            "marker": self.marker,
            "markeredgecolor": "white",
            "markeredgewidth": 0.5,
        }


ADD = LineStyle(INK, INK, "")


def line_style(impl: str) -> LineStyle:
    """The style of an implementation; outside FAMILIES it is by the name's hash. `NAME + torch` has NAME's, dashed."""
    name = impl.removesuffix(WITH_TORCH)
    for colour, members in FAMILIES.items():
        if name in members:
            lightness, marker, dashes = _MEMBERS[members.index(name)]
            return LineStyle(colour, shade(colour, lightness), marker, dashes if name == impl else MIXED)
    number = crc32(name.encode(), SEED)
    colour = _OTHERS[number % len(_OTHERS)]
    return LineStyle(colour, colour, _MARKERS[number // len(_OTHERS) % len(_MARKERS)], MIXED)


def svg_dashes(style: LineStyle) -> str:
    """The dashes of a line as an SVG's `stroke-dasharray` has them, for lines two wide; empty for a solid one."""
    return "" if style.dashes == SOLID else " ".join(f"{2 * part:g}" for part in style.dashes[1])


def shade(colour: str, lightness: float) -> str:
    """The colour mixed with white where `lightness` is above 0, with black where it is below."""
    ground = 1.0 if lightness > 0 else 0.0
    red, green, blue = (part + (ground - part) * abs(lightness) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def title(run: RunRecord, *what: str) -> str:
    """What is drawn, on which device and when."""
    return ", ".join((run.device.name, *what, run.started_at[:10]))


def backward(norm: Norm) -> str:
    """The backward of a norm as a title says it."""
    return f"{NORMS[norm]} backward"


def sheet(
    heading: str, panels: int = 1, *, height: float, across: int = 3, caption: str = ""
) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels, each `height` inches high, under a heading and over a caption."""
    across = min(across, panels)
    down = -(-panels // across)
    figure = Figure(
        figsize=(WIDTH, 1.05 + 0.15 * caption.count("\n") + down * (height + 0.5)), dpi=120, layout="constrained"
    )
    grid = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for axes in grid[panels:]:
        axes.remove()
    figure.suptitle(heading, x=0.01, ha="left", fontsize=11)
    if caption:
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=8, color=SOFT, linespacing=1.5)
    return figure, list(grid[:panels])


@styled
def save(figure: Figure, path: Path) -> None:
    """Write a figure as its path's ending says, the same bytes for the same figure."""
    _lay_out(figure)
    if path.suffix == ".svg":
        path.write_text(as_svg(figure), encoding="utf-8", newline="\n")
    else:
        figure.savefig(path, metadata={"Software": None}, pil_kwargs={"compress_level": 3})


@styled
def as_svg(figure: Figure) -> str:
    """The figure as svg text, the same for the same figure."""
    _lay_out(figure)
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def _lay_out(figure: Figure) -> None:
    """Lay out once, not again for each format."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine(None)
