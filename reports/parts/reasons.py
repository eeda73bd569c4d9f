"""The reasons of failures and of refusals: a line for each reason of an implementation, with its cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.analysis.checks import Checked
from harness.analysis.outcomes import FAILED, Outcome, by_impl
from harness.cases import NormCase
from harness.cases.input_kinds import INPUT_KINDS
from harness.cases.tensors import headings as in_order
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason, kind, single
from harness.records.schema import RANKED, Status, TensorCheck
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


def section(outcomes: Sequence[Outcome]) -> Section | None:
    """A table of failures and one of implementations that did not run; None where there are neither."""
    failed = [failure for of_impl in by_impl(outcomes).values() for failure in failures(of_impl, LISTED)]
    rows = [_row(line, alike) for line, alike in _alike(failed).items()]
    absent = [
        [impl, status, str(cases), figures.one_line(reason, LONGEST)]
        for (impl, status, reason), cases in refusals(outcomes).items()
    ]
    headings = [*left("impl", "status"), "cases", *left("reason")]
    parts = (table([*headings, *left("which")], rows), table(headings, absent))
    return Section("Reasons", parts) if rows or absent else None


def _alike(failed: Iterable[Failure]) -> dict[tuple[str, Status, str], list[Failure]]:
    """Failures of one implementation and status whose reasons are the same but for numbers, by what is shown of them.

    A case in which processes failed for several reasons stands with each of them.
    """
    groups: dict[tuple[str, Status, object], list[Failure]] = {}
    for failure in failed:
        for reason in single(failure.reason):
            groups.setdefault((failure.impl, failure.status, kind(reason)), []).append(replace(failure, reason=reason))
    lines: dict[tuple[str, Status, str], list[Failure]] = {}
    for alike in groups.values():
        lines.setdefault((alike[0].impl, alike[0].status, _shown(alike)), []).extend(alike)
    return lines


def _shown(alike: Sequence[Failure]) -> str:
    """The reason of failures that are alike, cut where it is long."""
    width = LONGEST_CRASH if alike[0].status == "crashed" else LONGEST
    return figures.one_line(sentence(*(failure.reason for failure in alike)), width)


def _row(line: tuple[str, Status, str], alike: Sequence[Failure]) -> list[str | Cell]:
    impl, status, reason = line
    cases = {failure.case: failure.cases for failure in alike}
    return [impl, status, str(sum(cases.values())), reason, _which(cases)]


def _which(cases: Mapping[str, int]) -> Cell:
    """The first of these cases, and the number of the others; all of them on demand."""
    more = sum(list(cases.values())[NAMED:])
    text = ", ".join(list(cases)[:NAMED])
    return Cell(f"{text} and {more} more", why=tuple(cases)) if more else Cell(text)


def failures(outcomes: Sequence[Outcome], statuses: Sequence[Status]) -> list[Failure]:
    """A line for each outcome of these statuses; one for all layouts if an implementation needs contiguous inputs."""
    layouts: dict[tuple[str, NormCase], list[Outcome]] = {}
    for outcome in outcomes:
        if not INPUT_KINDS[outcome.case.inputs].contiguous:
            layouts.setdefault((outcome.impl, replace(outcome.case, inputs="normal")), []).append(outcome)
    right = {(outcome.impl, outcome.case) for outcome in outcomes if outcome.status in RANKED}
    merged: set[tuple[str, NormCase]] = set()
    lines: list[Failure] = []
    for outcome in (outcome for outcome in outcomes if outcome.status in statuses):
        key = outcome.impl, replace(outcome.case, inputs="normal")
        group = layouts.get(key, [])
        if outcome not in group or key not in right or not _all_wrong(group):
            lines.append(Failure(outcome.impl, outcome.case.key, outcome.status, _reason(outcome)))
        elif key not in merged:
            merged.add(key)
            where = f"{key[1].key}, {len(group)} layouts"
            reason = Reason("not_contiguous", parts=[_reason(outcome)])
            lines.append(Failure(outcome.impl, where, "wrong", reason, len(group)))
    return lines


def _reason(outcome: Outcome) -> Reason:
    return outcome.reason or Reason("no_reason")


def _all_wrong(group: Sequence[Outcome]) -> bool:
    return len(group) > 1 and all(outcome.status == "wrong" for outcome in group)


def details(reason: Reason | None, checked: Checked) -> list[str]:
    """The details of an outcome, a line each: its reason, each gradient's error, and its determinism."""
    errors = [_error(name, checked.errors[name]) for name in in_order(checked.errors)]
    bits = [f"determinism: {determinism(checked)}"] if checked.repeats else []
    return [*([sentence(reason)] if reason else []), *errors, *bits]


def _error(name: str, error: TensorCheck) -> str:
    return f"{name}: rho {figures.rho(error.rho)}, {error.error_class}, relative rms {error.relative_rms:.2e}"


def refusals(outcomes: Sequence[Outcome]) -> dict[tuple[str, Status, Reason], int]:
    """The number of cases in which an implementation refused or was missing, by implementation and reason."""
    counts: dict[tuple[str, Status, Reason], int] = {}
    for outcome in (outcome for of_impl in by_impl(outcomes).values() for outcome in of_impl):
        if outcome.status in ("unsupported", "missing"):
            key = outcome.impl, outcome.status, _reason(outcome)
            counts[key] = counts.get(key, 0) + 1
    return counts
