"""Tables on a terminal: how they look, and how their columns stand."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table


def titled(title: str) -> Table:
    """A table under its title."""
    return Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )


def fill(table: Table, columns: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Words may wrap and stand to the left; figures do neither."""
    for head, _ in columns:
        words = head in ("impl", "case", "norm", "fastest", "next", "verdict", "same bits")
        table.add_column(head, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for cells in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*cells)
