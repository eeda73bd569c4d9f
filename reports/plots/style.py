"""One style for all plots: the colour and marker of an implementation, the figure it is drawn in, how it is saved."""

from __future__ import annotations

import re
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
INK, SOFT, GROUND, BAD = "#222222", "#555555", "#e6e6e6", "#c03221"
SOLID, DASHED, DOTTED, MIXED = "-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2))
# One colour for each library, by what the names of its implementations begin with: those of Okabe and Ito and Tol's
# wine, which the colour-blind tell apart, and then those that are farthest from all before in CIE Lab.
LIBRARIES = {
    OWN_IMPL: "#D55E00",
    "cudnn-graph": "#0087ff",
    "cudnn": "#0072B2",
    "quack": "#009E73",
    "torch-compiled": "#E69F00",
    "liger": "#CC79A7",
    "apex": "#56B4E9",
    "flash-attn": "#882255",
    BASELINE: "#8c8c8c",
    "mamba": "#3311cc",
    "fla": "#e03fd8",
    "fast-llm": "#6f64f4",
    "flag-gems": "#595900",
    "helion": "#9bbc2c",
    "oink": "#e9a67a",
    "tilegym": "#7a2c16",
    "torch-native": "#850090",
    "transformer-engine": "#007a00",
}
_OTHERS = ("#ff0059", "#00c800", "#b1a6ff")
_MARKERS = ("o", "^", "D", "v", "P", "X")
# How further implementations of a library differ from the one of its name: lightness, marker, dashes.
_MEMBERS = ((-0.3, "s", DASHED), (0.3, "^", DOTTED), (-0.5, "D", MIXED), (0.5, "v", DASHED), (-0.15, "P", DOTTED))
SEED = 3917  # of the hash of a name: no implementation here has a colour near that of another library's

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
    """The style of an implementation, by its library; of others by its hash. `NAME + torch` has NAME's, dashed."""
    name = impl.removesuffix(WITH_TORCH)
    number = crc32(name.encode(), SEED)
    library = next((library for library in LIBRARIES if re.match(rf"{library}(?![^-@#])", name)), None)
    if library is None:
        colour = _OTHERS[number % len(_OTHERS)]
        return LineStyle(colour, colour, _MARKERS[number // len(_OTHERS) % len(_MARKERS)], MIXED)
    lightness, marker, dashes = (0.0, "o", SOLID) if name == library else _MEMBERS[number % len(_MEMBERS)]
    family = LIBRARIES[library]
    return LineStyle(family, shade(family, lightness), marker, dashes if name == impl else MIXED)


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
