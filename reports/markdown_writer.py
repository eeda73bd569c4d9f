"""Tables and sections as GitHub-flavoured markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from reports import figures
from reports.table import Cell, Heading, Section, Table
from reports.table import table as make_table


def paragraphs(parts: Iterable[str]) -> str:
    """A page of these paragraphs, without the empty ones."""
    return "\n\n".join(part for part in parts if part) + "\n"


def write_section(section: Section, level: int = 2) -> list[str]:
    """The paragraphs of a section under its title; a table without rows is left out."""
    parts = [f"{'#' * level} {escape(section.title)}"]
    for part in section.parts:
        if isinstance(part, Section):
            parts += write_section(part, level + 1)
        else:
            parts.append(write_table(part) if isinstance(part, Table) else escape(part))
    return [part for part in parts if part]


def write_table(table: Table) -> str:
    """A table, texts to the left and figures to the right; empty where it has no rows."""
    if not table.rows:
        return ""
    cells = [[f"**{escape(c.text)}**" if c.status == "wrong" else escape(c.text) for c in row] for row in table.rows]
    align = ["left" if heading.left else "right" for heading in table.headings]
    return tabulate(cells, [escape(head) for head in table.heads], "github", disable_numparse=True, colalign=align)


def table(headings: Sequence[str | Heading], rows: Sequence[Sequence[str | Cell]]) -> str:
    """A table of these headings and rows, written."""
    return write_table(make_table(headings, rows))


def without_padding(page: str) -> str:
    """The page with its tables as narrow as their texts, which a reader of the rendered page does not see."""
    return "\n".join(_narrow(line) if line.startswith("|") else line for line in page.split("\n"))


def _narrow(line: str) -> str:
    return re.sub(r"-{4,}", "---", line) if re.fullmatch(r"[|:-]+", line) else re.sub(r"(?<=\|) +| +(?=\|)", " ", line)


def details(summary: str, text: str) -> str:
    """Text that is folded under its summary; empty where there is none."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>" if text else ""


def escape(text: str) -> str:
    """Text that stays within its line or cell, and is no tag or mention; backticks within it still mean code."""
    text = re.sub(r"[\\|]|<(?=[A-Za-z/!?])", r"\\\g<0>", figures.printable(text))
    return re.sub(r"(?<!\w)@(?=\w)", "@\u200b", text)  # GitHub tells whoever is mentioned


def code(text: str) -> str:
    """Text on one line, as code; it cannot end the code early."""
    return "`" + figures.printable(text).replace("`", "'") + "`"
