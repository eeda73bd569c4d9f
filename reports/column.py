"""One column of a table and how a row fills it, and functions that make columns of runs, cases and entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.comparison import Comparison
from reports import figures
from reports.table import Cell

Value = str | int | float | bool | None  # in a csv
_V = TypeVar("_V", bound=Value)


@dataclass(frozen=True)
class Row:
    """The subject of a row: an implementation on a case. `entry` is None where the case has no row of it."""

    comparison: Comparison
    case: CaseComparison
    entry: Entry | None


@dataclass(frozen=True)
class Column:
    """One column: its name in a csv, its heading with the unit, and how a row fills it.

    `value` is what a csv holds; `cell` is what people read, with the figure that a browser sorts by. The heading may
    depend on the first row of the table. `words` and `drop` are as in `Heading`.
    """

    name: str
    heading: str | Callable[[Row], str]
    value: Callable[[Row], Value]
    cell: Callable[[Row], Cell]
    words: bool = False
    drop: int = 0


def _plain(value: Value) -> str:
    return figures.NOTHING if value is None or value == "" else str(value)


def _cell(value: _V, text: Callable[[_V], str]) -> Cell:
    return Cell(text(value), value if isinstance(value, int | float) and not isinstance(value, bool) else None)


def of_run(name: str, value: Callable[[Comparison], str]) -> Column:
    """A column about the run."""
    return Column(name, name, lambda row: value(row.comparison), lambda row: Cell(value(row.comparison)), words=True)


def of_case(
    name: str,
    heading: str,
    value: Callable[[CaseComparison], _V],
    text: Callable[[_V], str] = _plain,
    *,
    words: bool = False,
    drop: int = 0,
) -> Column:
    """A column about the case."""
    return Column(name, heading, lambda row: value(row.case), lambda row: _cell(value(row.case), text), words, drop)


def of_entry(
    name: str,
    heading: str,
    value: Callable[[Entry], _V],
    text: Callable[[_V], str] = _plain,
    *,
    words: bool = False,
    drop: int = 0,
) -> Column:
    """A column about the implementation on the case; empty where the case has no row of it."""

    def entry_value(row: Row) -> Value:
        return value(row.entry) if row.entry else None

    def cell(row: Row) -> Cell:
        return _cell(value(row.entry), text) if row.entry else Cell(figures.NOTHING)

    return Column(name, heading, entry_value, cell, words, drop)
