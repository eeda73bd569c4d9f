"""The table of what a training step of each model spends in norm backwards."""

from __future__ import annotations

from reports import figures
from reports.data.comparison import Comparison
from reports.data.spending import Spending, spending
from reports.table import Cell, Heading, Section, Table, table, words

TITLE = "What a training step of these models spends in norm backwards"
ABOUT = (
    "ms a step: the time of each norm's backward, times how often a step calls it; harness/cases/models.py has the "
    "calls and their assumptions. + torch: where the implementation lacks a variant, its plain backward with torch's "
    "elementwise operators around it. A model of which any norm has no ranked time is left open."
)


def section(comparison: Comparison) -> Section | None:
    """A table for each number of tokens, or None where no model's norms were all measured."""
    tables = tables_by_tokens(comparison)
    if not tables:
        return None
    return Section(TITLE, (ABOUT, *(part for title, rows in tables.items() for part in (f"{title}:", rows))))


def tables_by_tokens(comparison: Comparison) -> dict[str, Table]:
    """The tables, each under the number of tokens of its step."""
    if not comparison.timed:
        return {}
    return {f"{spent.tokens} tokens": _table(spent) for spent in spending(comparison.cases)}


def _table(spent: Spending) -> Table:
    headings = [*words("impl"), *(Heading(name, words=True, drop=n) for n, name in enumerate(spent.models))]
    lines: list[list[str | Cell]] = [
        [spender.label, *(_cell(spender.ms[model], model in spender.with_torch) for model in spent.models)]
        for spender in spent.spenders
    ]
    return table(headings, [*lines, ["same-traffic add", *(_cell(spent.add_ms[model]) for model in spent.models)]])


def _cell(ms: float | None, with_torch: bool = False) -> Cell:
    return Cell(f"{figures.milliseconds(ms)}{' + torch' if with_torch else ''}", ms)
