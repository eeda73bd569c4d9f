"""Tables and sections before they are written, the same for markdown, a terminal and a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from harness.cases import Norm
from harness.records.schema import Status
from reports import figures

Kind = Literal["text", "number"]


@dataclass(frozen=True)
class Cell:
    """The text of a cell, the figure behind it, the status that it shows, and details that a reader may ask for.

    `about` of the last cell of a row has what the row is about, by which a browser filters and colours it.
    """

    text: str
    key: float | None = None
    status: Status | None = None
    why: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Heading:
    """The heading of a column: `left` for texts, figures stand to the right.

    On a terminal that is too narrow the column with the largest `drop` is left out first, one with 0 never.
    """

    text: str
    left: bool = False
    drop: int = 0


@dataclass(frozen=True)
class Table:
    """A table, in which every row has a cell for each heading; `norm` where all of it is about one."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    norm: Norm | None = None

    @property
    def heads(self) -> tuple[str, ...]:
        """The texts of the headings."""
        return tuple(heading.text for heading in self.headings)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """What a browser sorts each column by: its figures, where it holds nothing else."""
        return tuple(_kind(column) for column in zip(*self.rows, strict=True))

    def used(self) -> Table:
        """The table without the columns in which every cell is empty."""
        return self.choose(
            [n for n in range(len(self.headings)) if any(row[n].text != figures.NOTHING for row in self.rows)]
        )

    def choose(self, columns: Sequence[int]) -> Table:
        """The table with these columns alone, by their places."""
        return replace(
            self,
            headings=tuple(self.headings[n] for n in columns),
            rows=tuple(tuple(row[n] for n in columns) for row in self.rows),
        )


@dataclass(frozen=True)
class Section:
    """What stands under a title, in order; `norm` where all of it is about one."""

    title: str
    parts: tuple[str | Table | Section, ...]
    norm: Norm | None = None


def left(*texts: str) -> list[Heading]:
    """Headings of columns whose texts stand to the left."""
    return [Heading(text, left=True) for text in texts]


def table(headings: Sequence[str | Heading], rows: Sequence[Sequence[str | Cell]], norm: Norm | None = None) -> Table:
    """A table; a heading that is a text is that of figures, a cell that is a text has no details."""
    return Table(
        tuple(heading if isinstance(heading, Heading) else Heading(heading) for heading in headings),
        tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows),
        norm,
    )


def _kind(column: Sequence[Cell]) -> Kind:
    filled = [cell for cell in column if cell.key is not None or cell.text != figures.NOTHING]
    return "number" if filled and all(map(_is_figure, filled)) else "text"


def _is_figure(cell: Cell) -> bool:
    if cell.key is not None:
        return True
    try:
        float(cell.text)
    except ValueError:
        return False
    return True
