"""The columns of every table with a row for each implementation on each case, and which format shows which.

A new column is an entry in COLUMNS, and its name in the tuples of the formats that show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from harness.analysis.case_comparison import CaseComparison, Entry, Standing
from harness.analysis.checks import worst_error
from harness.analysis.comparison import Comparison
from harness.cases import NormCase
from harness.cases.tensors import gradients_of
from harness.cases.tensors import headings as short_names
from harness.cases.traffic import moved_bytes
from harness.records.reason_texts import sentence
from harness.records.schema import ErrorClass, TensorCheck
from reports import figures
from reports.column import Column, Row, Value, of_case, of_entry, of_run
from reports.labels import MARKS, determinism, entry_label, same_bits
from reports.table import Cell, Heading, Table, table

OF_A_PLAIN_CASE = [gradient.name for gradient in gradients_of(NormCase("layer", 1, 1, bias=True))]


def table_of(names: Sequence[str], rows: Sequence[Row], headings: Mapping[str, str] | None = None) -> Table:
    """A table of these columns; one that no row fills is left out. `headings` replaces those of some columns."""
    if not rows:
        return table([], [])
    chosen = columns(names, rows)
    texts = {c.name: c.heading if isinstance(c.heading, str) else c.heading(rows[0]) for c in chosen}
    texts |= headings or {}
    heads = [Heading(texts[column.name], column.words, column.drop) for column in chosen]
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


def _gradients_of_case(row: Row) -> dict[str, str]:
    return _gradients(passed(row.comparison, row.case))


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
        return Cell("untimed" if entry.standing == "verified" else entry.status)
    return Cell(f"{time} ({MARKS[entry.other_bits]})" if entry.other_bits else time, entry.median_us)


def _time(row: Row) -> Cell:
    if row.entry is None:
        return Cell(figures.NOTHING)
    if row.entry.standing == "verified" and row.comparison.timed:
        return Cell("verified")
    return Cell(figures.microseconds(row.entry.median_us), row.entry.median_us)


def _speedup(row: Row) -> Cell:
    entry = row.entry
    if entry and entry.standing == "ranked" and entry.impl == row.comparison.baseline:
        return Cell("base", 1.0)
    ratio = entry.speedup if entry else None
    return Cell(figures.ratio_and_interval(ratio), ratio.value if ratio else None)


def _fastest(case: CaseComparison) -> str:
    return entry_label(case.fastest) if case.fastest else "too fast to tell" if case.ranked else "nothing ranked"


def _next(case: CaseComparison) -> str | None:
    return entry_label(case.ranked[1]) if len(case.ranked) > 1 else None


def _lead(case: CaseComparison) -> str:
    lead = case.lead
    return "tie" if lead and lead.tied_with else figures.ratio(lead.ratio if lead else None)


def _rho(entry: Entry, tensor: str) -> tuple[float | None, ErrorClass]:
    error = entry.checked.errors.get(tensor)
    return (error.rho, error.error_class) if error else (None, "exact")


def _errors(tensor: str) -> list[Column]:
    """The columns of the error of one gradient."""

    def rho(row: Row) -> Cell:
        value, error_class = _rho(row.entry, tensor) if row.entry else (None, "exact")
        return Cell(figures.rho(value, error_class), value)

    def of_check(value: Callable[[TensorCheck], Value]) -> Callable[[Entry], Value]:
        return lambda entry: value(entry.checked.errors[tensor]) if tensor in entry.checked.errors else None

    return [
        Column(f"rho_{tensor}", f"rho {tensor}", lambda row: _rho(row.entry, tensor)[0] if row.entry else None, rho),
        of_entry(f"relative_rms_{tensor}", f"rms {tensor}", of_check(lambda error: error.relative_rms)),
        of_entry(f"error_class_{tensor}", f"class {tensor}", of_check(lambda error: error.error_class), words=True),
    ]


def _rhos(row: Row) -> Cell:
    """The errors of all gradients, with the mark of the worst."""
    checked = row.entry.checked if row.entry else None
    if checked is None or checked.error_class is None:
        return Cell(figures.NOTHING)
    errors = [checked.errors.get(name) for name in _gradients_of_case(row)]
    numbers = "/".join(figures.rho(error.rho if error else None) for error in errors)
    return Cell(numbers + figures.EXTRA_ROUNDINGS[checked.error_class])


def _worst_rho(entry: Entry) -> float | None:
    errors = list(entry.checked.errors.values())
    return worst_error(errors).rho if errors else None


def _worst_rho_cell(row: Row) -> Cell:
    if row.entry is None:
        return Cell(figures.NOTHING)
    rho = _worst_rho(row.entry)
    return Cell(figures.rho(rho, row.entry.checked.error_class or "exact"), rho)


def _notes(entry: Entry) -> list[str]:
    notes = [figures.one_line(note, 400) for note in entry.notes]
    shown = entry.standing in ("ranked", "failed")  # in the column of determinism, or where failures are listed
    return notes if shown or not entry.reason else [*notes, figures.one_line(entry.reason, 400)]


def _note_numbers(row: Row) -> Cell:
    listed = footnotes(row.comparison, row.case)
    numbers = [str(listed.index(note) + 1) for note in (_notes(row.entry) if row.entry else [])]
    return Cell(", ".join(numbers) or figures.NOTHING)


def _in_percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _band_percent(case: CaseComparison) -> float | None:
    return None if case.aa_band is None or not math.isfinite(case.aa_band) else 100 * math.expm1(case.aa_band)


def _baseline(row: Row) -> Entry | None:
    return row.case.entry(row.comparison.baseline)


_OF_RUN = (
    of_run("device", lambda comparison: comparison.run.device.name),
    of_run("flush", lambda comparison: comparison.run.settings.flush),
    of_run("context", lambda comparison: comparison.context),
    of_run("baseline", lambda comparison: comparison.baseline),
)
_OF_CASE = (
    of_case("case", "case", lambda case: case.case.key, words=True),
    of_case("short_case", "case", lambda case: case.case.key.removeprefix(f"{case.case.norm}-"), words=True),
    of_case("norm", "norm", lambda case: case.case.norm, words=True),
    of_case("rows", "rows", lambda case: case.case.rows),
    of_case("cols", "cols", lambda case: case.case.cols),
    of_case("dtype", "dtype", lambda case: case.case.dtype, words=True),
    of_case("weight_dtype", "weight dtype", lambda case: case.case.weight_dtype, words=True),
    of_case("weight", "weight", lambda case: case.case.weight, words=True),
    of_case("bias", "bias", lambda case: case.case.bias, words=True),
    of_case("zero_centred", "zero-centred", lambda case: case.case.zero_centred, words=True),
    of_case("eps", "eps", lambda case: case.case.eps),
    of_case("inputs", "inputs", lambda case: case.case.inputs, words=True),
    of_case("moved_bytes", "to move", lambda case: moved_bytes(case.case), figures.size),
    of_case("add_us", "add us", lambda case: case.add_us, figures.microseconds, drop=6),
    of_case("copy_us", "copy us", lambda case: case.copy_us, figures.microseconds),
    of_case("aa_band_percent", "A/A band %", _band_percent, lambda band: figures.percent(band, 2)),
    of_case("fastest", "fastest", _fastest, words=True),
    of_case("lead", "lead", _lead, drop=3),
    of_case(
        "next", "next", lambda case: entry_label(case.ranked[1]) if len(case.ranked) > 1 else None, words=True, drop=7
    ),
    of_case("failed", "failed", lambda case: len(case.failed) or None, drop=4),
    Column(
        "base_us",
        lambda row: f"{row.comparison.baseline} us",
        lambda row: base.median_us if (base := _baseline(row)) else None,
        lambda row: _time_or_why(_baseline(row)),
        drop=5,
    ),
    Column(
        "fastest_us",
        "its us",
        lambda row: row.case.fastest.median_us if row.case.fastest else None,
        lambda row: _time_or_why(row.case.fastest) if row.case.fastest else Cell(figures.NOTHING),
    ),
)
_OF_ENTRY = (
    replace(
        of_entry("impl", "impl", lambda entry: entry.impl, words=True),
        cell=lambda row: Cell(entry_label(row.entry) if row.entry else figures.NOTHING),
    ),
    of_entry("standing", "standing", lambda entry: entry.standing, words=True),
    replace(
        of_entry("status", "status", lambda entry: entry.status, words=True),
        cell=lambda row: Cell(row.entry.status if row.entry else "no row"),
    ),
    of_entry(
        "reason", "reason", lambda entry: sentence(entry.reason) if entry.reason else None, figures.one_line, words=True
    ),
    Column("median_us", "us", lambda row: row.entry.median_us if row.entry else None, _time),
    Column(
        "ranked_us",
        "us",
        lambda row: row.entry.median_us if row.entry else None,
        lambda row: _time_or_why(row.entry),
    ),
    of_entry("spread_percent", "±%", lambda e: _in_percent(e.spread), lambda value: figures.percent(value, 2), drop=9),
    of_entry("blocks", "blocks", lambda entry: entry.blocks),
    of_entry("processes", "processes", lambda entry: entry.processes),
    Column(
        "speedup", "speedup [95 %]", lambda row: r.value if row.entry and (r := row.entry.speedup) else None, _speedup
    ),
    of_entry("speedup_low", "at least", lambda e: e.speedup.low if e.speedup else None, figures.plain_ratio),
    of_entry("speedup_high", "at most", lambda e: e.speedup.high if e.speedup else None, figures.plain_ratio),
    of_entry("verdict", "verdict", lambda entry: entry.verdict, words=True, drop=2),
    of_entry("bandwidth_gbps", "GB/s", lambda entry: entry.bandwidth_gbps, figures.gbps, drop=8),
    of_entry("percent_of_add", "% add", lambda entry: entry.percent_of_add, figures.percent, drop=3),
    of_entry("percent_of_copy", "% copy", lambda entry: entry.percent_of_copy, figures.percent),
    of_entry("percent_of_datasheet", "% datasheet", lambda entry: entry.percent_of_datasheet, figures.percent),
    of_entry("repeats", "runs", lambda entry: entry.checked.repeats),
    of_entry("differing", "differ", lambda entry: entry.checked.differing),
    of_entry("differing_in", "differ in", lambda entry: " ".join(entry.checked.differing_in), words=True),
    of_entry("determinism", "deterministic", lambda entry: determinism(entry.checked), words=True),
    of_entry("same_bits", "same bits", lambda entry: same_bits(entry.checked), drop=4),
    of_entry("peak_extra_bytes", "extra memory", lambda entry: entry.peak_extra_bytes, figures.size),
    of_entry("kernels", "kernels", lambda entry: None if entry.kernels is None else len(entry.kernels)),
    of_entry("prepare_s", "prepare", lambda entry: entry.prepare_s, figures.seconds),
    of_entry("via", "via", lambda entry: entry.via, words=True),
    of_entry("in_place", "in place", lambda entry: entry.in_place, words=True),
    of_entry("proven", "proven", lambda entry: entry.proven, words=True),
    replace(
        of_entry("notes", "notes", lambda entry: "; ".join(map(sentence, entry.notes)), words=True), cell=_note_numbers
    ),
)
_OF_ERRORS = (
    Column(
        "rhos",
        lambda row: "rho " + "/".join(_gradients(passed(row.comparison, row.case)).values()),
        lambda _: None,
        _rhos,
        drop=6,
    ),
    Column("rho_worst", "rho, worst", lambda row: _worst_rho(row.entry) if row.entry else None, _worst_rho_cell),
)
COLUMNS = {column.name: column for column in (*_OF_RUN, *_OF_CASE, *_OF_ENTRY, *_OF_ERRORS)}


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
PULL_REQUEST = _names("case base_us fastest fastest_us ranked_us speedup verdict bandwidth_gbps percent_of_add")
PULL_REQUEST_UNTIMED = _names("case status rho_each determinism")
HTML = _names(
    "case norm rows cols impl status median_us speedup verdict bandwidth_gbps percent_of_add rho_worst same_bits"
)
HTML_CASES = _names("case fastest median_us speedup lead next base_us add_us failed")
_NOT_IN_CSV = _names(
    "context short_case fastest lead next failed base_us fastest_us ranked_us determinism same_bits rhos rho_worst"
)
CSV = (*(name for name in COLUMNS if name not in _NOT_IN_CSV), "errors")
