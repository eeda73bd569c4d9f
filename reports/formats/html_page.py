"""What all pages for a browser share: their templates, the plots within them, and their conditions."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis.comparison import Comparison
from reports.parts import conditions

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parents[1] / "templates"


def fill(template: str, **values: Any) -> str:
    """A template as text, with these values."""
    return _environment().get_template(template).render(**values)


@dataclass(frozen=True)
class Picture:
    """A plot: its name, what it shows, and an address that holds it whole."""

    name: str
    title: str
    address: str


def pictures(plots: Iterable[tuple[str, Figure]]) -> list[Picture]:
    """Plots for a page; their titles are without the device and the date, which the page says once."""
    from reports.plots.style import as_svg  # imports matplotlib: seconds

    return [
        Picture(name, _subject(figure), f"data:image/svg+xml;base64,{b64encode(as_svg(figure).encode()).decode()}")
        for name, figure in plots
    ]


def _subject(figure: Figure) -> str:
    _, *what, _ = figure.get_suptitle().split(", ")
    text = ", ".join(what)
    return text[:1].upper() + text[1:]


def conditions_of(comparison: Comparison) -> list[tuple[str, str]]:
    """The conditions of a run with the command that made it."""
    return [*conditions.conditions(comparison), ("Command", f"`{comparison.run.command}`")]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # imported where it is used: reports stay light

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    environment.filters["anchor"] = _anchor
    return environment


def _anchor(title: str) -> str:
    """A title as the name of a place on the page."""
    return re.sub(r"\W+", "-", title.lower())


def _code(text: str) -> Markup:
    """Text in which what stands between backticks is code, as in markdown."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # escaped first: nothing else is markup
