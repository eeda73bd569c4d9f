"""The reasons of failures (one line for each case) and of refusals (one line for each reason)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.cases import NormCase
from harness.cases.input_kinds import INPUT_KINDS
from harness.cases.tensors import headings as in_order
from harness.results.schema import RANKED, Status, TensorCheck
from reports import figures
from reports.data.checks import Checked
from reports.data.outcomes import FAILED, Outcome, by_impl
from reports.table import Section, table, words

LISTED: tuple[Status, ...] = (*FAILED, "nondeterministic")
LONGEST = 300
NOT_CONTIGUOUS = "where x or dy is not contiguous; an adapter may declare contiguous_only = True"


@dataclass(frozen=True)
class Failure:
    """A line of the table of failures: the case, or a case in several layouts, and the reason."""

    impl: str
    case: str
    status: Status
    reason: str | None


def section(outcomes: Sequence[Outcome]) -> Section | None:
    """A table of failures and one of implementations that did not run; None where there are neither."""
    rows = [
        [failure.impl, failure.case, failure.status, figures.one_line(failure.reason, LONGEST) or figures.NOTHING]
        for failure in failures(outcomes, LISTED)
    ]
    absent = [[impl, status, str(cases), reason] for (impl, status, reason), cases in refusals(outcomes).items()]
    parts = [table(words("impl", "case", "status", "reason"), rows)]
    parts += [table([*words("impl", "status"), "cases", *words("reason")], absent)]
    return Section("Reasons", tuple(parts)) if rows or absent else None


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
            lines.append(Failure(outcome.impl, outcome.case.key, outcome.status, outcome.reason))
        elif key not in merged:
            merged.add(key)
            where = f"{key[1].key}, {len(group)} layouts"
            lines.append(Failure(outcome.impl, where, "wrong", f"{NOT_CONTIGUOUS}: {outcome.reason}"))
    return lines


def _all_wrong(group: Sequence[Outcome]) -> bool:
    return len(group) > 1 and all(outcome.status == "wrong" for outcome in group)


def details(reason: str | None, checked: Checked) -> list[str]:
    """The details of an outcome, a line each: its reason, each gradient's error, and its determinism."""
    errors = [_error(name, checked.errors[name]) for name in in_order(checked.errors)]
    bits = [f"determinism: {checked.determinism}"] if checked.repeats else []
    return [*([reason] if reason else []), *errors, *bits]


def _error(name: str, error: TensorCheck) -> str:
    return f"{name}: rho {figures.rho(error.rho)}, {error.error_class}, relative rms {error.relative_rms:.2e}"


def refusals(outcomes: Sequence[Outcome]) -> dict[tuple[str, Status, str], int]:
    """The number of cases in which an implementation refused or was missing, by implementation and reason."""
    counts: dict[tuple[str, Status, str], int] = {}
    for outcome in (outcome for of_impl in by_impl(outcomes).values() for outcome in of_impl):
        if outcome.status in ("unsupported", "missing"):
            key = outcome.impl, outcome.status, figures.one_line(outcome.reason, LONGEST) or figures.NOTHING
            counts[key] = counts.get(key, 0) + 1
    return counts
