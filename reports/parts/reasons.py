"""Why implementations failed, refused or did not run: in lines for a comparison, in tables for a verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.analysis.case_comparison import Entry
from harness.analysis.checks import Checked
from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import Outcome, by_impl
from harness.cases.input_kinds import INPUT_KINDS
from harness.cases.tensors import headings as in_order
from harness.cases.unfused import WITH_TORCH
from harness.grouping import grouped
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason, kind, single
from harness.records.schema import FAILED, NOT_RUN, RANKED, Status
from reports import figures
from reports.labels import determinism
from reports.table import Cell, Section, left, table

LISTED: tuple[Status, ...] = (*FAILED, "nondeterministic")
LONGEST = 300
LONGEST_CRASH = 120  # what an exception says comes first, then where in C++ it was raised
NAMED = 3  # cases of a line: all of them are in the tables of outcomes


@dataclass(frozen=True)
class Failure:
    """Why an implementation failed on a case, or on one case in several layouts: then `cases` says in how many."""

    impl: str
    case: str
    status: Status
    reason: Reason
    cases: int = 1


def failure_lines(comparison: Comparison, width: int = 160) -> list[str]:
    """One sentence for each way in which an implementation did not pass, its reason in at most `width` characters."""
    return [
        f"{failure.impl}: {failure.status} in {figures.count(len(failure.cases), 'case')} "
        f"({'in the first: ' if failure.varies else ''}{figures.one_line(failure.reason, width)}): "
        f"{', '.join(failure.cases)}"
        for failure in comparison.summary.failures
    ]


def not_run(comparison: Comparison) -> str:
    """A line about implementations that did not run: reasons with their numbers of cases, then the missing ones.

    Not of NAME where a case was given to `NAME + torch` in its place.
    """
    absent: list[Entry] = []
    for case in comparison.cases:
        tried = {entry.impl for entry in case.entries}
        absent += [entry for entry in case.of("absent") if entry.impl + WITH_TORCH not in tried]
    refused = Counter(
        f"{entry.impl} ({entry.status}: {figures.one_line(entry.reason, 80)}"
        for entry in absent
        if entry.status != "missing"
    )
    parts = [f"{why}; {figures.count(number, 'case')})" for why, number in refused.items()]
    lines = [f"Not run: {', '.join(parts)}."] if parts else []
    if left_out := comparison.run.left_out:
        lines.append(f"Left out, as they compile for minutes: {', '.join(left_out)} (`--impls all` runs them).")
    return " ".join([*lines, *missing(entry.impl for entry in absent if entry.status == "missing")])


def missing(impls: Iterable[str]) -> list[str]:
    """A sentence that names the implementations that are not installed; empty where all are."""
    names = list(dict.fromkeys(impls))
    return [f"Missing: {', '.join(names)} (`normbwd list impls` says how to install each)."] if names else []


def section(outcomes: Sequence[Outcome]) -> Section | None:
    """A table of failures and one of implementations that did not run; None where there are neither."""
    failed = [failure for of_impl in by_impl(outcomes).values() for failure in failures(of_impl, LISTED)]
    rows = [
        [impl, status, str(sum(cases.values())), reason, _which(cases)]
        for (impl, status, reason), cases in _alike(failed).items()
    ]
    absent = [
        [impl, status, str(cases), figures.one_line(reason, LONGEST)]
        for (impl, status, reason), cases in refusals(outcomes).items()
    ]
    headings = [*left("impl", "status"), "cases", *left("reason")]
    parts = (table([*headings, *left("which")], rows), table(headings, absent))
    return Section("Reasons", parts) if rows or absent else None


def _alike(failed: Iterable[Failure]) -> dict[tuple[str, Status, str], dict[str, int]]:
    """The cases of each implementation, status and reason, cut where it is long, for reasons that differ in numbers.

    A case in which processes failed for several reasons stands with each of them.
    """
    groups: dict[tuple[str, Status, object], list[Failure]] = {}
    for failure in failed:
        for reason in single(failure.reason):
            groups.setdefault((failure.impl, failure.status, kind(reason)), []).append(replace(failure, reason=reason))
    lines: dict[tuple[str, Status, str], dict[str, int]] = {}
    for (impl, status, _), alike in groups.items():
        width = LONGEST_CRASH if status == "crashed" else LONGEST
        shown = figures.one_line(sentence(*(failure.reason for failure in alike)), width)
        lines.setdefault((impl, status, shown), {}).update({failure.case: failure.cases for failure in alike})
    return lines


def _which(cases: dict[str, int]) -> Cell:
    """The first of these cases, and the number of the others; all of them on demand."""
    more = sum(list(cases.values())[NAMED:])
    text = ", ".join(list(cases)[:NAMED])
    return Cell(f"{text} and {more} more", why=tuple(cases)) if more else Cell(text)


def failures(outcomes: Sequence[Outcome], statuses: Sequence[Status]) -> list[Failure]:
    """A line for each outcome of these statuses; one for all layouts if an implementation needs contiguous inputs."""
    apart = [outcome for outcome in outcomes if not INPUT_KINDS[outcome.case.inputs].contiguous]
    layouts = grouped(((outcome.impl, replace(outcome.case, inputs="normal")), outcome) for outcome in apart)
    right = {(outcome.impl, outcome.case) for outcome in outcomes if outcome.status in RANKED}
    lines: dict[object, Failure] = {}
    for outcome in (outcome for outcome in outcomes if outcome.status in statuses):
        key = outcome.impl, replace(outcome.case, inputs="normal")
        group = layouts.get(key, [])
        needs_contiguous = outcome in group and key in right and len(group) > 1
        if needs_contiguous and all(other.status == "wrong" for other in group):
            reason = Reason("not_contiguous", parts=[_reason(outcome)])
            failure = Failure(outcome.impl, f"{key[1].key}, {len(group)} layouts", "wrong", reason, len(group))
            lines.setdefault(key, failure)
        else:
            lines[outcome.impl, outcome.case, "itself"] = Failure(
                outcome.impl, outcome.case.key, outcome.status, _reason(outcome)
            )
    return list(lines.values())


def refusals(outcomes: Sequence[Outcome]) -> dict[tuple[str, Status, Reason], int]:
    """The number of cases in which an implementation refused or was missing, by implementation and reason."""
    return Counter(
        (outcome.impl, outcome.status, _reason(outcome))
        for of_impl in by_impl(outcomes).values()
        for outcome in of_impl
        if outcome.status in NOT_RUN
    )


def _reason(outcome: Outcome) -> Reason:
    return outcome.reason or Reason("no_reason")


def details(reason: Reason | None, checked: Checked) -> list[str]:
    """The details of an outcome, a line each: its reason, each gradient's error, and its determinism."""
    errors = [
        f"{name}: rho {figures.rho(error.rho)}, {error.error_class}, relative rms {error.relative_rms:.2e}"
        for name in in_order(checked.errors)
        if (error := checked.errors[name])
    ]
    bits = [f"determinism: {determinism(checked)}"] if checked.repeats else []
    return [*([sentence(reason)] if reason else []), *errors, *bits]
