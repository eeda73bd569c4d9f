"""A GitHub table, and text that may stand in one."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

WORDS = (
    "impl",
    "implementation",
    "kernels, us",
    "norm",
    "case",
    "in which",
    "status",
    "deterministic",
    "notes",
    "did not pass",
    "reason",
    "verdict",
    "fastest",
    "self-test",
    "check",
    "passed",
    "how",
    "inputs",
    "kind",
    "what it is there to find",
    "wrong on it",
    "class on normal inputs",
    "class",
    "determinism",
    "tool",
    "detail",
)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A GitHub table, its columns of words to the left and those of figures to the right."""
    if not rows:
        return ""
    cells = [[escape(cell) for cell in row] for row in rows]
    align = ["left" if head in WORDS else "right" for head in heads]
    return tabulate(cells, [escape(head) for head in heads], "github", disable_numparse=True, colalign=align)


def escape(text: str) -> str:
    """Text that stays within its cell, and is not taken for a tag."""
    return text.replace("|", "\\|").replace("<", "\\<").replace("\n", " ")
