"""The columns of every table with a row for each implementation on each case, and which format shows which.

A new column is an entry in COLUMNS, and its name in the tuples of the formats that show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from harness.analysis.case_comparison import CaseComparison, Entry, Standing
from harness.analysis.checks import Checked, worst_error
from harness.analysis.comparison import Comparison
from harness.analysis.revisions import change
from harness.cases import NormCase
from harness.cases.tensors import gradients_of
from harness.cases.tensors import headings as short_names
from harness.cases.traffic import moved_bytes
from harness.records.reason_texts import sentence
from harness.records.schema import RANKED
from reports import figures
from reports.labels import MARKS, determinism, entry_label, same_bits
from reports.table import Cell, Heading, Table, table

OF_A_PLAIN_CASE = [gradient.name for gradient in gradients_of(NormCase("layer", 1, 1, bias=True))]


@dataclass(frozen=True)
class Row:
    """The subject of a row: an implementation on a case. `entry` is None where the case has no row of it.

    `outcome` is a gate's on it, where there is one.
    """

    comparison: Comparison
    case: CaseComparison
    entry: Entry | None
    outcome: str | None = None


def _plain(value: Any) -> str:
    return figures.NOTHING if value is None or value == "" else str(value)


@dataclass(frozen=True)
class Column:
    """One column: its name in a csv, its heading with the unit, which may depend on the row, and how a row fills it.

    `value` is what a csv holds and `text` how people read it, unless `shown` makes their cell. `left` and `drop` are
    as in `Heading`.
    """

    name: str
    heading: str | Callable[[Row], str]
    value: Callable[[Row], Any]
    text: Callable[[Any], str] = _plain
    shown: Callable[[Row], Cell] | None = None
    left: bool = False
    drop: int = 0

    def cell(self, row: Row) -> Cell:
        """What people read, with the figure that a browser sorts by."""
        if self.shown:
            return self.shown(row)
        value = self.value(row)
        return Cell(self.text(value), value if isinstance(value, int | float) and not isinstance(value, bool) else None)


def _of_case(name: str, heading: str, value: Callable[[CaseComparison], Any], *text: Any, **kind: Any) -> Column:
    return Column(name, heading, lambda row: value(row.case), *text, **kind)


def _of_entry(name: str, heading: str, value: Callable[[Entry], Any], *text: Any, **kind: Any) -> Column:
    return Column(name, heading, lambda row: value(row.entry) if row.entry else None, *text, **kind)


def table_of(names: Sequence[str], rows: Sequence[Row], headings: Mapping[str, str] | None = None) -> Table:
    """A table of these columns; one that no row fills is left out. `headings` replaces those of some columns."""
    if not rows:
        return table([], [])
    chosen = columns(names, rows)
    texts = {c.name: c.heading if isinstance(c.heading, str) else c.heading(rows[0]) for c in chosen}
    texts |= headings or {}
    heads = [Heading(texts[column.name], column.left, column.drop) for column in chosen]
    return table(heads, [[column.cell(row) for column in chosen] for row in rows]).used()


def columns(names: Sequence[str], rows: Sequence[Row]) -> list[Column]:
    """The columns of these names; `rho_each` is one for each gradient of these rows, `errors` all of each.

    `errors` has those of a plain case's gradients, whether any row has them or not.
    """
    chosen: list[Column] = []
    for name in names:
        if name == "rho_each":
            chosen += [_errors(tensor)[0] for tensor in _gradients(rows)]
        elif name == "errors":
            chosen += [column for tensor in _gradients(rows, *OF_A_PLAIN_CASE) for column in _errors(tensor)]
        else:
            chosen.append(COLUMNS[name])
    return chosen


def _gradients(rows: Sequence[Row], *more: str) -> dict[str, str]:
    """The gradients that anything was checked of, and their short names."""
    return short_names([*more, *(name for row in rows if row.entry for name in row.entry.checked.errors)])


def rows_of(comparison: Comparison) -> list[Row]:
    """A row for every implementation on every case, in the order of the comparison."""
    return [Row(comparison, case, entry) for case in comparison.cases for entry in case.entries]


def passed(comparison: Comparison, case: CaseComparison) -> list[Row]:
    """A row for every implementation that passed; where nothing was timed, for those that failed as well."""
    failed: tuple[Standing, ...] = () if comparison.timed else ("failed",)
    return [Row(comparison, case, entry) for entry in case.of("ranked", "unranked", "verified", *failed)]


def footnotes(comparison: Comparison, case: CaseComparison) -> list[str]:
    """The notes on the rows of `passed`, each once; the column `notes` refers to them by number, from 1."""
    return list(dict.fromkeys(note for row in passed(comparison, case) if row.entry for note in _notes(row.entry)))


def _time_or_why(entry: Entry | None) -> Cell:
    """A time; where there is none that ranks, why."""
    if entry is None:
        return Cell("no row")
    time = figures.microseconds(entry.median_us)
    if entry.standing == "unranked":
        return Cell(f"{time} (not ranked)", entry.median_us)
    if entry.standing != "ranked":
        if entry.wrong_us:
            return Cell(f"{figures.microseconds(entry.wrong_us)} (wrong)")
        return Cell("untimed" if entry.standing == "verified" else entry.status)
    return Cell(f"{time} ({MARKS[entry.other_bits]})" if entry.other_bits else time, entry.median_us)


def _time(row: Row) -> Cell:
    if row.entry and row.entry.standing == "verified" and row.comparison.timed:
        return Cell("verified")
    if row.entry and row.entry.wrong_us:
        return Cell(f"{figures.microseconds(row.entry.wrong_us)} (wrong)")
    return Cell(figures.microseconds(_median_us(row)), _median_us(row))


def _median_us(row: Row) -> float | None:
    return row.entry.median_us if row.entry else None


def _speedup(row: Row) -> Cell:
    entry = row.entry
    if entry and entry.standing == "ranked" and entry.impl == row.comparison.baseline:
        return Cell("base", 1.0)
    ratio = entry.speedup if entry else None
    return Cell(figures.ratio_and_interval(ratio), ratio.value if ratio else None)


def _fastest(case: CaseComparison) -> str:
    return entry_label(case.fastest) if case.fastest else "too fast to tell" if case.ranked else "nothing ranked"


def _lead(case: CaseComparison) -> str:
    lead = case.lead
    return "tie" if lead and lead.tied_with else figures.ratio(lead.ratio if lead else None)


def _errors(tensor: str) -> list[Column]:
    """The columns of the error of one gradient."""

    def value(name: str) -> Callable[[Entry], Any]:
        return lambda entry: getattr(entry.checked.errors.get(tensor), name, None)

    def rho(row: Row) -> Cell:
        error = row.entry.checked.errors.get(tensor) if row.entry else None
        return Cell(figures.rho(error.rho, error.error_class), error.rho) if error else Cell(figures.NOTHING)

    return [
        _of_entry(f"rho_{tensor}", f"rho {tensor}", value("rho"), shown=rho),
        _of_entry(f"relative_rms_{tensor}", f"rms {tensor}", value("relative_rms")),
        _of_entry(f"error_class_{tensor}", f"class {tensor}", value("error_class"), left=True),
    ]


def rhos(checked: Checked, tensors: Iterable[str]) -> str:
    """The errors of these gradients, with the mark of the worst class."""
    if checked.error_class is None:
        return figures.NOTHING
    errors = [checked.errors.get(name) for name in tensors]
    numbers = "/".join(figures.rho(error.rho if error else None) for error in errors)
    return numbers + figures.EXTRA_ROUNDINGS[checked.error_class]


def _rhos(row: Row) -> Cell:
    tensors = _gradients(passed(row.comparison, row.case))
    return Cell(rhos(row.entry.checked, tensors) if row.entry else figures.NOTHING)


def _worst_rho(entry: Entry) -> float | None:
    errors = list(entry.checked.errors.values())
    return worst_error(errors).rho if errors else None


def _worst_rho_cell(row: Row) -> Cell:
    rho = _worst_rho(row.entry) if row.entry else None
    return Cell(figures.rho(rho, (row.entry and row.entry.checked.error_class) or "exact"), rho)


def _label(row: Row) -> Cell:
    return Cell(entry_label(row.entry) if row.entry else figures.NOTHING)


def _right_and_bits(entry: Entry) -> str:
    """Whether it is right and, where it is, whether its bits are the same in every run; else its status."""
    return f"right, {same_bits(entry.checked)}" if entry.status in RANKED else entry.status


def _notes(entry: Entry) -> list[str]:
    notes = [figures.one_line(note, 400) for note in entry.notes]
    shown = entry.standing in ("ranked", "failed")  # in the column of determinism, or where failures are listed
    return notes if shown or not entry.reason else [*notes, figures.one_line(entry.reason, 400)]


def _note_numbers(row: Row) -> Cell:
    listed = footnotes(row.comparison, row.case)
    numbers = [str(listed.index(note) + 1) for note in (_notes(row.entry) if row.entry else [])]
    return Cell(", ".join(numbers) or figures.NOTHING)


def _band_percent(case: CaseComparison) -> float | None:
    return None if case.aa_band is None or not math.isfinite(case.aa_band) else 100 * math.expm1(case.aa_band)


def _two_decimals(value: float | None) -> str:
    return figures.percent(value, 2)


def _memory(row: Row) -> Cell:
    """The extra memory, and base's where that is another."""
    mine, of_base = (entry.peak_extra_bytes if entry else None for entry in (row.entry, _baseline(row)))
    head, base = map(figures.size, (mine, of_base))
    was = f" (base {base})" if None not in (mine, of_base) and head != base else ""
    return Cell(head + was, mine)


def _baseline(row: Row) -> Entry | None:
    return row.case.entry(row.comparison.baseline)


_OF_RUN = (
    Column("device", "device", lambda row: row.comparison.run.device.name, left=True),
    Column("flush", "flush", lambda row: row.comparison.run.settings.flush, left=True),
    Column("context", "context", lambda row: row.comparison.context, left=True),
    Column("baseline", "baseline", lambda row: row.comparison.baseline, left=True),
)
_OF_CASE = (
    _of_case("case", "case", lambda case: case.case.key, left=True),
    _of_case("short_case", "case", lambda case: case.case.key.removeprefix(f"{case.case.norm}-"), left=True),
    *(
        _of_case(name, name.replace("_", " "), attrgetter(f"case.{name}"), left=name not in ("rows", "cols", "eps"))
        for name in ("norm", "rows", "cols", "dtype", "weight_dtype", "weight", "bias", "zero_centred", "eps", "inputs")
    ),
    _of_case("moved_bytes", "to move", lambda case: moved_bytes(case.case), figures.size),
    _of_case("add_us", "add us", lambda case: case.add_us, figures.microseconds, drop=6),
    _of_case("copy_us", "copy us", lambda case: case.copy_us, figures.microseconds),
    _of_case("aa_band_percent", "A/A band %", _band_percent, _two_decimals),
    _of_case("fastest", "first", _fastest, left=True),
    _of_case("lead", "lead", _lead, drop=3),
    _of_case("next", "next", lambda case: next(map(entry_label, case.ranked[1:]), None), left=True, drop=7),
    _of_case("failed", "failed", lambda case: len(case.of("failed")) or None, drop=4),
    Column(
        "base_us",
        lambda row: f"{row.comparison.baseline} us",
        lambda row: base.median_us if (base := _baseline(row)) else None,
        shown=lambda row: _time_or_why(_baseline(row)),
        drop=5,
    ),
)
_OF_ENTRY = (
    _of_entry("impl", "impl", lambda entry: entry.impl, shown=_label, left=True),
    _of_entry("standing", "standing", lambda entry: entry.standing, left=True),
    _of_entry("status", "status", lambda entry: entry.status, lambda status: status or "no row", left=True),
    _of_entry(
        "reason", "reason", lambda entry: sentence(entry.reason) if entry.reason else None, figures.one_line, left=True
    ),
    Column("median_us", "us", _median_us, shown=_time),
    Column("ranked_us", "us", _median_us, shown=lambda row: _time_or_why(row.entry)),
    _of_entry("spread_percent", "±%", lambda e: None if e.spread is None else 100 * e.spread, _two_decimals, drop=9),
    _of_entry("blocks", "blocks", lambda entry: entry.blocks),
    _of_entry("processes", "processes", lambda entry: entry.processes),
    _of_entry("speedup", "speedup [95 %]", lambda e: e.speedup.value if e.speedup else None, shown=_speedup),
    _of_entry("speedup_low", "at least", lambda e: e.speedup.low if e.speedup else None, figures.plain_ratio),
    _of_entry("speedup_high", "at most", lambda e: e.speedup.high if e.speedup else None, figures.plain_ratio),
    _of_entry("verdict", "verdict", lambda entry: entry.verdict, left=True, drop=2),
    Column("change", "verdict", lambda row: change(row.case, row.entry), left=True),
    Column("gate", "gate", lambda row: row.outcome, left=True),
    Column("memory", "extra memory", lambda _: None, shown=_memory),
    _of_entry("bandwidth_gbps", "GB/s", lambda entry: entry.bandwidth_gbps, figures.gbps, drop=8),
    _of_entry("percent_of_add", "% add", lambda entry: entry.percent_of_add, figures.percent, drop=3),
    _of_entry("percent_of_copy", "% copy", lambda entry: entry.percent_of_copy, figures.percent),
    _of_entry("percent_of_datasheet", "% datasheet", lambda entry: entry.percent_of_datasheet, figures.percent),
    _of_entry("repeats", "runs", lambda entry: entry.checked.repeats),
    _of_entry("differing", "differ", lambda entry: entry.checked.differing),
    _of_entry("differing_in", "differ in", lambda entry: " ".join(entry.checked.differing_in), left=True),
    _of_entry("determinism", "deterministic", lambda entry: determinism(entry.checked), left=True),
    _of_entry("same_bits", "same bits", lambda entry: same_bits(entry.checked), drop=4),
    _of_entry("right_and_bits", "right, same bits", _right_and_bits, left=True),
    _of_entry("peak_extra_bytes", "extra memory", lambda entry: entry.peak_extra_bytes, figures.size),
    _of_entry("kernels", "kernels", lambda entry: None if entry.kernels is None else len(entry.kernels)),
    _of_entry("prepare_s", "prepare", lambda entry: entry.prepare_s, figures.seconds),
    _of_entry("via", "via", lambda entry: entry.via, left=True),
    _of_entry("in_place", "in place", lambda entry: entry.in_place, left=True),
    _of_entry("proven", "proven", lambda entry: entry.proven, left=True),
    _of_entry("notes", "notes", lambda e: "; ".join(map(sentence, e.notes)), shown=_note_numbers, left=True),
    _of_entry("rho_worst", "rho, worst", _worst_rho, shown=_worst_rho_cell),
    Column(
        "rhos",
        lambda row: "rho " + "/".join(_gradients(passed(row.comparison, row.case)).values()),
        lambda _: None,
        shown=_rhos,
        drop=6,
    ),
)
COLUMNS = {column.name: column for column in (*_OF_RUN, *_OF_CASE, *_OF_ENTRY)}


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CONSOLE = _names("impl median_us spread_percent speedup verdict bandwidth_gbps percent_of_add rhos same_bits")
# A line a case, about its fastest implementation.
OVERVIEW = _names("short_case add_us base_us fastest median_us speedup percent_of_add next lead failed")
MARKDOWN = _names(
    "impl median_us spread_percent speedup verdict bandwidth_gbps percent_of_add percent_of_copy percent_of_datasheet "
    "rho_each determinism peak_extra_bytes kernels notes"
)
MARKDOWN_UNTIMED = _names("impl status rho_each determinism peak_extra_bytes kernels notes")
# A line a case, about one implementation.
PULL_REQUEST = _names("case base_us ranked_us speedup verdict peak_extra_bytes right_and_bits")
HEAD_AND_BASE = _names("case base_us ranked_us speedup change gate memory right_and_bits")
PULL_REQUEST_UNTIMED = _names("case status rho_each determinism")
# What is asked for first stands first, and on a narrow screen.
HTML = _names(
    "case impl speedup verdict median_us status bandwidth_gbps percent_of_add rho_worst same_bits norm rows cols"
)
HTML_CASES = _names("case speedup fastest median_us lead next base_us add_us failed")
_NOT_IN_CSV = _names(
    "context short_case fastest lead next failed base_us ranked_us determinism same_bits right_and_bits rhos rho_worst "
    "change gate memory"
)
CSV = (*(name for name in COLUMNS if name not in _NOT_IN_CSV), "errors")
