"""The table of what a training step of each model spends in norm backwards."""

from __future__ import annotations

from harness.analysis.comparison import Comparison
from harness.analysis.step import Spender, Spending, spending
from reports import figures
from reports.labels import spender_label
from reports.table import Cell, Heading, Section, Table, left, table

TITLE = "What a training step of these models spends in norm backwards"
ABOUT = (
    "ms a step: the time of each norm's backward, times how often a step calls it; harness/cases/models.py has the "
    "calls and their assumptions. + torch: where the implementation lacks a variant, its plain backward with torch's "
    "elementwise operators around it. ±: some norms take less than ten times t0, and each may be off by t0. A model of "
    "which any norm failed, or may not be compared for another reason, is left open."
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
    return {f"{spent.tokens} tokens": _table(spent) for spent in spending(comparison.cases, comparison.budget)}


def _table(spent: Spending) -> Table:
    headings = [*left("impl"), *(Heading(name, left=True, drop=n) for n, name in enumerate(spent.models))]
    lines: list[list[str | Cell]] = [
        [spender_label(spender), *(_of(spender, model) for model in spent.models)]
        for spender in (*spent.spenders, spent.add)
    ]
    return table(headings, lines)


def _of(spender: Spender, model: str) -> Cell:
    ms, error_ms = spender.ms[model], spender.error_ms[model]
    error = f" ± {figures.milliseconds(error_ms)}" if ms is not None and error_ms else ""
    torch = " + torch" if model in spender.with_torch else ""
    return Cell(f"{figures.milliseconds(ms)}{error}{torch}", ms)
