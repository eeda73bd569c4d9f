"""Why what is not right is not right: a line a case for what failed, a line a reason for what was refused."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records import Status
from reports import figures
from reports.markdown_table import table
from reports.outcomes import FAILED, Outcome, by_impl

TOLD: tuple[Status, ...] = (*FAILED, "nondeterministic")
LONGEST = 300


def render(found: Sequence[Outcome]) -> list[str]:
    """The parts of the section; empty where everything is right."""
    rows = [
        [outcome.impl, outcome.case.key, outcome.status, figures.one_line(outcome.reason, LONGEST) or figures.NOTHING]
        for outcome in found
        if outcome.status in TOLD
    ]
    absent = [[impl, status, str(cases), reason] for (impl, status, reason), cases in refusals(found).items()]
    parts = [table(["impl", "case", "status", "reason"], rows)]
    parts += [table(["impl", "status", "cases", "reason"], absent)]
    return ["## Reasons", *parts] if rows or absent else []


def refusals(found: Sequence[Outcome]) -> dict[tuple[str, Status, str], int]:
    """In how many cases each implementation refused, or was missing, for each reason; one implementation at a time."""
    counts: dict[tuple[str, Status, str], int] = {}
    for outcome in (outcome for of in by_impl(found).values() for outcome in of):
        if outcome.status in ("unsupported", "missing"):
            key = outcome.impl, outcome.status, figures.one_line(outcome.reason, LONGEST) or figures.NOTHING
            counts[key] = counts.get(key, 0) + 1
    return counts
