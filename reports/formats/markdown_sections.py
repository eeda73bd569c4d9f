"""Sections as GitHub-flavoured markdown."""

from __future__ import annotations

from reports.parts.markdown_table import table
from reports.parts.sections import Cell, Section, Table


def write(section: Section, level: int = 2) -> list[str]:
    """The parts of a section under its title, a paragraph each; a table without rows is left out."""
    parts = [f"{'#' * level} {section.title}"]
    for part in section.parts:
        if isinstance(part, Section):
            parts += write(part, level + 1)
        else:
            parts.append(write_table(part) if isinstance(part, Table) else part)
    return [part for part in parts if part]


def write_table(found: Table) -> str:
    """A table; empty where it has no rows."""
    return table(found.heads, [[_text(cell) for cell in row] for row in found.rows])


def _text(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.status == "wrong" else cell.text
