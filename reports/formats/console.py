"""The comparison for a person at a terminal; the full detail is in the markdown."""

from __future__ import annotations

from rich.console import Console

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from reports import columns, figures
from reports.columns import Row
from reports.formats import console_verified
from reports.parts import answers, caveats, models, not_passed, training_step, yardsticks
from reports.parts.geomeans import geomeans
from reports.table import Table
from reports.terminal import WIDTH, captured, print_line, print_table

MOST_CASES_IN_FULL = 12  # beyond, a table for each case fills many screens: one line for each case instead


def show(comparison: Comparison, console: Console) -> None:
    """Print the cases, then the summary, then what a reader must know."""
    if comparison.timed:
        print_line(console, answers.correctness(comparison), "bold")
        console.print()
    if not comparison.timed:
        console_verified.show(comparison, console)
    elif len(comparison.cases) > MOST_CASES_IN_FULL:
        _overview(comparison, console)
    else:
        for case in comparison.cases:
            _case(comparison, case, console)
    if comparison.timed:
        if absent := not_passed.not_run(comparison):
            print_line(console, absent, "dim")
            console.print()
        _summary(comparison, console)
        _in_a_training_step(comparison, console)
    for caveat in caveats.caveats(comparison):
        print_line(console, caveat, "bold yellow")
    print_line(console, answers.headline(comparison), "bold")
    if budget := yardsticks.error_budget(comparison):
        print_line(console, budget)
    print_line(console, _legend(comparison), "dim")


def render(comparison: Comparison, width: int = WIDTH) -> str:
    """The same as plain text of that width."""
    return captured(lambda console: show(comparison, console), width)


def _case(comparison: Comparison, case: CaseComparison, console: Console) -> None:
    add = f"{yardsticks.add_and_copy(case)}, {yardsticks.aa_band(case)}"
    title = f"{case.case.key}   {add}"
    if rows := columns.passed(comparison, case):
        print_table(console, columns.table_of(columns.CONSOLE, rows), title)
    else:
        print_line(console, f"{title}: nothing passed")
    for entry in case.of("unranked", "verified"):
        if entry.reason and entry.reason != case.interference:  # which stands once below
            print_line(console, f"  {entry.impl}: {figures.one_line(entry.reason)}")
    console.print()


def _overview(comparison: Comparison, console: Console) -> None:
    """A line for each case: what is fastest, by how much over the baseline and over the next."""
    for norm in dict.fromkeys(case.case.norm for case in comparison.cases):
        rows = [Row(comparison, case, case.fastest) for case in comparison.cases if case.case.norm == norm]
        print_table(console, columns.table_of(columns.OVERVIEW, rows), f"{norm}: the fastest of each case")
        console.print()


def _summary(comparison: Comparison, console: Console) -> None:
    if comparison.summary.geomeans:
        print_table(console, geomeans(comparison))
    for tokens, table in models.tables_by_tokens(comparison).items():
        print_table(console, table, f"{models.TITLE}, ms, {tokens}")
    for failure in not_passed.failures(comparison):
        print_line(console, figures.one_line(failure, 400), "red")


def _in_a_training_step(comparison: Comparison, console: Console) -> None:
    section = training_step.section(comparison)
    if section:
        console.print()
        print_line(console, section.title, "bold")
    for part in section.parts if section else ():
        if isinstance(part, Table):
            print_table(console, part)
        elif isinstance(part, str):
            print_line(console, part)
    if section:
        console.print()


def _legend(comparison: Comparison) -> str:
    checked = f"rho: error in units of one final rounding, {figures.LEGEND}; n: runs with the same bits"
    compared = comparison.timed and not caveats.nothing_ranked(comparison)
    return f"speedup over {comparison.baseline}; {checked}" if compared else checked
