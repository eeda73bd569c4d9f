"""The comparison for a person at a terminal, within 120 columns; the full detail is in the markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reports import figures
from reports.data.comparison import CaseComparison, Comparison
from reports.data.entries import Entry
from reports.formats import console_verified
from reports.formats.console_table import fill, titled
from reports.parts import wording

WIDTH = 120
MOST_CASES_IN_FULL = 12  # beyond, a table a case scrolls the summary's subject away: one line a case instead
COLOURS = {"faster": "green", "slower": "red", "same": "yellow"}


def show(comparison: Comparison, console: Console) -> None:
    """Print the cases, then the summary, then what a reader must know."""
    if not comparison.timed:
        console_verified.show(comparison, console)
    elif len(comparison.cases) > MOST_CASES_IN_FULL:
        for norm in dict.fromkeys(case.case.norm for case in comparison.cases):
            console.print(_overview(comparison, norm, [case for case in comparison.cases if case.case.norm == norm]))
            console.print()
        if absent := wording.not_run_anywhere(comparison):
            console.print(escape(absent), style="dim", highlight=False)
            console.print()
    else:
        for case in comparison.cases:
            _case(comparison, case, console)
    _summary(comparison, console)
    if budget := wording.error_budget(comparison):
        console.print(escape(budget), highlight=False)
    console.print(escape(_legend(comparison)), style="dim", highlight=False)


def render(comparison: Comparison) -> str:
    """The same as plain text, 120 columns wide."""
    console = Console(width=WIDTH, color_system=None, force_terminal=False, force_jupyter=False)
    with console.capture() as capture:
        show(comparison, console)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _case(comparison: Comparison, case: CaseComparison, console: Console) -> None:
    add = f"add {figures.microseconds(case.add_us)} us, A/A band {figures.band(case.aa_band)}"
    title = f"{case.case.key}   {add}"
    table = titled(title)
    shown = case.of("ranked", "unranked", "verified")
    columns = [("impl", [escape(entry.label) for entry in shown])]
    columns += [*_timed_columns(comparison, shown), *_checked_columns(shown)]
    columns = [column for column in columns if any(cell != figures.NOTHING for cell in column[1])]
    if shown:
        fill(table, columns)
        console.print(table)
    else:
        console.print(f"{escape(title)}: nothing passed", highlight=False)
    for entry in case.of("unranked", "verified"):
        if entry.reason:
            console.print(f"  {escape(entry.impl)}: {escape(figures.one_line(entry.reason))}", highlight=False)
    for entry in case.failed:
        text = f"  {entry.impl}: {entry.status}, {figures.one_line(entry.reason)}"
        console.print(escape(text), style="red", highlight=False)
    if absent := wording.not_run(case.of("absent")):
        console.print(f"  {escape(absent)}", style="dim", highlight=False)
    console.print()


def _timed_columns(comparison: Comparison, entries: Sequence[Entry]) -> list[tuple[str, list[str]]]:
    return [
        ("us", [figures.microseconds(entry.median_us) for entry in entries]),
        ("±%", [figures.spread(entry.spread) for entry in entries]),
        ("speedup [95 %]", [_speedup(comparison, entry) for entry in entries]),
        ("verdict", [_verdict(entry) for entry in entries]),
        ("GB/s", [figures.gbps(entry.bandwidth_gbps) for entry in entries]),
        ("% add", [figures.percent(entry.percent_of_add) for entry in entries]),
    ]


def _checked_columns(entries: Sequence[Entry]) -> list[tuple[str, list[str]]]:
    return [
        ("rho " + "/".join(_tensors(entries)), [_rho(entry, entries) for entry in entries]),
        ("same bits", [entry.checked.bits for entry in entries]),
    ]


def _overview(comparison: Comparison, norm: str, cases: Sequence[CaseComparison]) -> Table:
    """A line a case: what is fastest, by how much over the baseline and over the next, and how near to the add."""
    table = titled(f"{norm}: the fastest of each case")
    rows = [_overview_row(comparison, case) for case in cases]
    heads = ["case", "add us", "base us", "fastest", "us", "speedup", "% add", "next", "lead", "failed"]
    fill(table, list(zip(heads, (list(cells) for cells in zip(*rows, strict=True)), strict=True)))
    return table


def _overview_row(comparison: Comparison, case: CaseComparison) -> list[str]:
    base = case.entry(comparison.baseline)
    best = case.fastest
    lead = case.lead
    tied = lead is not None and bool(lead.tied_with)
    return [
        case.case.key.removeprefix(f"{case.case.norm}-"),
        figures.microseconds(case.add_us),
        figures.microseconds(base.median_us if base and base.standing == "ranked" else None),
        escape(best.label) if best else ("too fast to tell" if case.ranked else "nothing ranked"),
        figures.microseconds(best.median_us if best else None),
        figures.ratio(best.speedup if best else None),
        figures.percent(best.percent_of_add if best else None),
        escape(case.ranked[1].label) if len(case.ranked) > 1 else figures.NOTHING,
        "tie" if tied else figures.ratio(lead.ratio if lead else None),
        str(len(case.failed)) if case.failed else figures.NOTHING,
    ]


def _summary(comparison: Comparison, console: Console) -> None:
    if comparison.timed and comparison.summary.geomeans:
        table = titled(f"geometric mean speedup over {comparison.baseline}")
        wins = {wins.impl: wins for wins in comparison.summary.wins}
        rows = [
            [
                escape(mean.label),
                mean.norm,
                figures.plain_ratio(mean.value),
                f"{figures.plain_ratio(mean.smallest)} to {figures.plain_ratio(mean.largest)}",
                f"{mean.cases} of {mean.total}",
                f"{figures.plain_ratio(mean.common)} ({mean.common_cases})",
                str(sum(key.startswith(mean.norm) for key in wins[mean.impl].alone) if mean.impl in wins else 0),
                str(sum(key.startswith(mean.norm) for key in wins[mean.impl].tied) if mean.impl in wins else 0),
            ]
            for mean in comparison.summary.geomeans
        ]
        heads = ["impl", "norm", "speedup", "smallest to largest", "cases", "on common cases", "wins", "ties"]
        fill(table, list(zip(heads, (list(cells) for cells in zip(*rows, strict=True)), strict=True)))
        console.print(table)
    for failure in wording.failures(comparison) if comparison.timed else ():  # told a line a case otherwise
        console.print(escape(figures.one_line(failure, 400)), style="red", highlight=False)
    for caveat in wording.caveats(comparison):
        console.print(escape(caveat), style="bold yellow", highlight=False)
    console.print(escape(wording.headline(comparison)), style="bold", highlight=False)


def _legend(comparison: Comparison) -> str:
    checked = f"rho: error in units of one final rounding, {figures.LEGEND}; n: runs with the same bits"
    return f"speedup over {comparison.baseline}; {checked}" if comparison.timed else checked


def _speedup(comparison: Comparison, entry: Entry) -> str:
    if entry.standing == "ranked" and entry.impl == comparison.baseline:
        return "base"
    return escape(figures.ratio_and_interval(entry.speedup))


def _verdict(entry: Entry) -> str:
    if entry.verdict is None:
        return "verified" if entry.standing == "verified" else figures.NOTHING
    return f"[{COLOURS[entry.verdict]}]{entry.verdict}[/]"


def _tensors(entries: Sequence[Entry]) -> list[str]:
    found = {name for entry in entries for name in entry.checked.errors}
    return [short for name, short in (("dx", "dx"), ("dweight", "dw"), ("dbias", "db")) if name in found]


def _rho(entry: Entry, entries: Sequence[Entry]) -> str:
    """The errors of all gradients, with the mark of the worst."""
    if entry.checked.error_class is None:
        return figures.NOTHING
    names = {"dx": "dx", "dw": "dweight", "db": "dbias"}
    errors = [entry.checked.errors.get(names[short]) for short in _tensors(entries)]
    numbers = "/".join(figures.rho(error.rho) if error else figures.NOTHING for error in errors)
    return numbers + figures.EXTRA_ROUNDINGS[entry.checked.error_class]
