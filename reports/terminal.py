"""Tables and lines at a terminal, as wide as it is."""

from __future__ import annotations

from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from reports import figures
from reports.table import Table

WIDTH = 120
GAP = 2  # between columns
COLOURS = {"faster": "green", "slower": "red", "same": "yellow"}


def captured(show: Callable[[Console], None], width: int = WIDTH) -> str:
    """What `show` prints, as plain text of that width."""
    console = Console(width=width, color_system=None, force_terminal=False, force_jupyter=False, emoji=False)
    with console.capture() as capture:
        show(console)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def print_table(console: Console, table: Table, title: str = "") -> None:
    """Print a table under its title; columns are left out in the order of their headings until it fits.

    Words may go on in the next line, but nothing breaks inside a word, and figures stay on theirs.
    """
    table = fitted(table, console.width)
    if title:
        print_line(console, title, "bold")
    grid = RichTable(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for heading, least in zip(table.headings, _least_widths(table), strict=True):
        grid.add_column(
            _literal(heading.text),
            justify="left" if heading.left else "right",
            no_wrap=not heading.left,
            overflow="fold",
            min_width=min(least, console.width),
        )
    for row in table.rows:
        texts = [cell.text for cell in row]
        grid.add_row(*(f"[{COLOURS[text]}]{text}[/]" if text in COLOURS else _literal(text) for text in texts))
    console.print(grid)


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print a line of text as it is, in one style."""
    console.print(_literal(text), style=style, highlight=False)


def fitted(table: Table, width: int) -> Table:
    """The table without the columns that do not fit into `width` characters."""
    shown = list(range(len(table.headings)))
    least = _least_widths(table)
    while sum(least[n] + GAP for n in shown) - GAP > width:
        last = max(shown, key=lambda n: table.headings[n].drop)
        if table.headings[last].drop == 0:
            break
        shown.remove(last)
    return table.choose(shown)


def _least_widths(table: Table) -> list[int]:
    """How narrow each column may be: its longest word, or its longest text where that stays on one line."""
    widths: list[int] = []
    for n, heading in enumerate(table.headings):
        texts = [heading.text, *(row[n].text for row in table.rows)]
        parts = [part for text in texts for part in (text.split() if heading.left else [text])]
        widths.append(max(map(len, parts), default=0))
    return widths


def _literal(text: str) -> str:
    """Text in which nothing is taken for markup of rich's or for an escape of the terminal's."""
    return escape(figures.printable(text))
