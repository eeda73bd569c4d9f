"""The reasons of failures (one line for each case) and of refusals (one line for each reason)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cases.tensors import headings as in_order
from harness.results.schema import Status, TensorCheck
from reports import figures
from reports.data.checks import Checked
from reports.data.outcomes import FAILED, Outcome, by_impl
from reports.table import Section, table, words

TOLD: tuple[Status, ...] = (*FAILED, "nondeterministic")
LONGEST = 300


def section(outcomes: Sequence[Outcome]) -> Section | None:
    """A table of failures and one of implementations that did not run; None where there are neither."""
    rows = [
        [outcome.impl, outcome.case.key, outcome.status, figures.one_line(outcome.reason, LONGEST) or figures.NOTHING]
        for outcome in outcomes
        if outcome.status in TOLD
    ]
    absent = [[impl, status, str(cases), reason] for (impl, status, reason), cases in refusals(outcomes).items()]
    parts = [table(words("impl", "case", "status", "reason"), rows)]
    parts += [table([*words("impl", "status"), "cases", *words("reason")], absent)]
    return Section("Reasons", tuple(parts)) if rows or absent else None


def behind(reason: str | None, checked: Checked) -> list[str]:
    """All that is known of one outcome, a line each: its reason, each gradient's error, and how often bits agreed."""
    errors = [_error(name, checked.errors[name]) for name in in_order(checked.errors)]
    bits = [f"determinism: {checked.determinism}"] if checked.repeats else []
    return [*([reason] if reason else []), *errors, *bits]


def _error(name: str, error: TensorCheck) -> str:
    return f"{name}: rho {figures.rho(error.rho)}, {error.error_class}, relative rms {error.relative_rms:.2e}"


def refusals(outcomes: Sequence[Outcome]) -> dict[tuple[str, Status, str], int]:
    """In how many cases each implementation refused, or was missing, for each reason; one implementation at a time."""
    counts: dict[tuple[str, Status, str], int] = {}
    for outcome in (outcome for of_impl in by_impl(outcomes).values() for outcome in of_impl):
        if outcome.status in ("unsupported", "missing"):
            key = outcome.impl, outcome.status, figures.one_line(outcome.reason, LONGEST) or figures.NOTHING
            counts[key] = counts.get(key, 0) + 1
    return counts
