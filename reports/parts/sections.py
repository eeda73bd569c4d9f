"""What a page says before it is written: sections of sentences and tables, the same for markdown and for a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.cases import Norm
from harness.results.schema import Status
from reports import figures

Kind = Literal["text", "number"]


@dataclass(frozen=True)
class Cell:
    """What stands in a cell, the figure behind it, the outcome that it tells, and what a reader may ask for beyond."""

    text: str
    key: float | None = None
    status: Status | None = None
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table, in which every row has a cell for each head; `norm` where all of it is about one."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    norm: Norm | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What each column is sorted by: its figures, where it holds nothing else."""
        return tuple(_kind(column) for column in zip(*self.rows, strict=True))


@dataclass(frozen=True)
class Section:
    """What stands under a title, in order; `norm` where all of it is about one."""

    title: str
    parts: tuple[str | Table | Section, ...]
    norm: Norm | None = None


def table(heads: Sequence[str], rows: Sequence[Sequence[str | Cell]], norm: Norm | None = None) -> Table:
    """A table of cells, or of texts that have nothing behind them."""
    cells = [tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows]
    return Table(tuple(heads), tuple(cells), norm)


def _kind(column: Sequence[Cell]) -> Kind:
    told = [cell for cell in column if cell.key is not None or cell.text != figures.NOTHING]
    return "number" if told and all(map(_is_figure, told)) else "text"


def _is_figure(cell: Cell) -> bool:
    if cell.key is not None:
        return True
    try:
        float(cell.text)
    except ValueError:
        return False
    return True
