"""All times of a run on one page: a row for each case, a column for each implementation, the fastest in bold."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.checks import OtherBits
from harness.analysis.comparison import Comparison
from harness.analysis.statistics import geomean
from harness.cases import Norm
from harness.cases.unfused import WITH_TORCH
from harness.grouping import grouped
from harness.records.reason_texts import sentence
from reports import figures
from reports.columns import COLUMNS, Row
from reports.labels import MARKS
from reports.markdown_writer import escape, paragraphs, table, write_section, write_table
from reports.parts import answers, caveats, conditions, libraries, reasons, training_step
from reports.parts.geomeans import geomeans
from reports.table import left

DIFFER: dict[OtherBits, tuple[str, str]] = {  # a sign and what it means
    "in one process": (" †", "other bits from run to run"),
    "in a new process": (" §", f"{MARKS['in a new process']}, the same within one"),
}
UNRANKED = " ‡"
HELPED = " +"
ABOUT_HELPED = "the implementation lacks the variant; its plain backward, and torch's operators around it"
ORDER = (
    "Columns: the best implementation first, by the geometric mean of its time over that of the fastest, in the cases "
    "that have a fastest and in which it ranks."
)


def render(comparison: Comparison) -> str:
    """The page as GitHub-flavoured markdown: headline, times, geometric means, models and contexts, conditions."""
    parts = [f"# Norm backwards on {escape(comparison.run.device.name)}", escape(answers.headline(comparison))]
    parts += [f"**{escape(caveat)}**" for caveat in caveats.caveats(comparison)]
    norms: dict[Norm, None] = dict.fromkeys(case.case.norm for case in comparison.cases)
    parts += [_times(comparison, norm) for norm in norms]
    if comparison.timed:
        parts += [_legend(comparison), conditions.error_budget(comparison)]
        parts += [*write_section(libraries.section(comparison)), write_table(geomeans(comparison))]
    for section in filter(None, (training_step.of_models(comparison), training_step.section(comparison))):
        parts += write_section(section)
    parts += [
        "\n".join(f"- {failure}" for failure in map(escape, reasons.failure_lines(comparison))),
        escape(reasons.not_run(comparison)),
        conditions.conditions_list(comparison),
    ]
    return paragraphs(parts)


def _times(comparison: Comparison, norm: Norm) -> str:
    """Median us of one norm, a column for each implementation that has a time; and what adapters note of the calls."""
    cases = [case for case in comparison.cases if case.case.norm == norm]
    impls = _best_first(cases, _columns(cases))
    known = [COLUMNS["copy_us"]] if any(case.copy_us for case in cases) else []
    of_case = [COLUMNS["case"], COLUMNS["add_us"], *known]
    every_row = [Row(comparison, case, None) for case in cases]
    rows = [
        [*(c.cell(row).text for c in of_case), *(_marked_time(row.case, impl) for impl in impls)] for row in every_row
    ]
    times = table([*left("case"), "add us", *(["copy us"] if known else []), *impls], rows) if impls else ""
    every = [(note, entry.impl) for case in cases for entry in case.entries for note in entry.notes]
    notes = grouped((sentence(note), impl) for note, impl in every if note.code == "adapter_note")
    noted = (f"- {', '.join(dict.fromkeys(of))}: {escape(note)}" for note, of in notes.items())
    return paragraphs([times, "\n".join(noted)]).rstrip()


def _timed(cases: Sequence[CaseComparison]) -> set[str]:
    """The implementations of which a time is shown."""
    return {entry.impl for case in cases for entry in case.entries if entry.median_us or entry.wrong_us}


def _columns(cases: Sequence[CaseComparison]) -> set[str]:
    """The implementations that have a time; `NAME + torch` stands in the column of NAME where that has times too."""
    timed = _timed(cases)
    return {impl for impl in timed if not (impl.endswith(WITH_TORCH) and impl.removesuffix(WITH_TORCH) in timed)}


def _entry(case: CaseComparison, impl: str) -> Entry | None:
    """The entry of an implementation, or that of `NAME + torch` where a case was given to it in the place of NAME."""
    entry = case.entry(impl)
    if entry is None or entry.standing == "absent":
        return case.entry(impl + WITH_TORCH) or entry
    return entry


def _best_first(cases: Sequence[CaseComparison], impls: Collection[str]) -> list[str]:
    """The implementations by how many times as long as the fastest they take, and then those that rank nowhere."""
    over: dict[str, list[float]] = {}
    for case in cases:
        best_us = case.fastest.median_us if case.fastest else None
        for impl in impls if best_us else ():
            entry = _entry(case, impl)
            if best_us and entry and entry.standing == "ranked" and entry.median_us:
                over.setdefault(impl, []).append(entry.median_us / best_us)
    return sorted(impls, key=lambda impl: (geomean(over[impl]) if impl in over else math.inf, impl))


def _marked_time(case: CaseComparison, impl: str) -> str:
    entry = _entry(case, impl)
    if entry is None or entry.standing == "absent":
        return figures.NOTHING
    helped = "" if entry.impl == impl else HELPED
    if entry.standing == "unranked":
        return figures.microseconds(entry.median_us) + helped + UNRANKED
    if entry.standing != "ranked":
        return (f"{figures.microseconds(entry.wrong_us)} wrong" if entry.wrong_us else entry.status) + helped
    sign, _ = DIFFER[entry.other_bits] if entry.other_bits else ("", "")
    text = figures.microseconds(entry.median_us) + helped + sign
    best = case.lead is not None and entry.impl in (case.lead.impl, *case.lead.tied_with)
    return f"**{text}**" if best else text


def _legend(comparison: Comparison) -> str:
    shown_only = any(case.of("unranked") for case in comparison.cases)
    unranked = f" {UNRANKED.strip()}: shown, not ranked (`--format markdown` says why)." if shown_only else ""
    shown = {entry.other_bits for case in comparison.cases for entry in case.ranked}
    other_bits = [f"{sign}: {meaning}" for mark, (sign, meaning) in DIFFER.items() if mark in shown]
    tried = {entry.impl for case in comparison.cases for entry in case.entries if entry.standing != "absent"}
    any_helped = any(impl + WITH_TORCH in tried for impl in _timed(comparison.cases))  # in the column of NAME
    helped = f" {HELPED.strip()}: {ABOUT_HELPED}." if any_helped else ""
    return (
        "Median us of the backward alone, cold cache; **bold**: first, and what cannot be told from it; add: an "
        "elementwise add with the same traffic, a yardstick and no bound; copy: the same bytes at the rate of a large "
        f"{';'.join(['copy', *other_bits])}. "
        f"A/A bands: {conditions.aa_bands(comparison.cases)}.{unranked}{helped} {ORDER}"
    )
