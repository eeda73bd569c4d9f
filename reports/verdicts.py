"""The verdicts of a gate as text: what did not pass first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tabulate import tabulate

from harness.gate import GRAVEST_FIRST, Verdict

MOST_ROWS = 40


def render(verdicts: Sequence[Verdict]) -> str:
    """A line for each claim and case, at most MOST_ROWS of them, and the count of each verdict."""
    ordered = sorted(verdicts, key=lambda verdict: GRAVEST_FIRST.index(verdict.outcome))
    rows = [[v.outcome, v.case.key if v.case else "", _claim(v), v.reason] for v in ordered[:MOST_ROWS]]
    counted = Counter(verdict.outcome for verdict in verdicts)
    lines = [tabulate(rows, ["verdict", "case", "claim", "because"], "simple", disable_numparse=True)]
    if len(ordered) > MOST_ROWS:
        lines.append(f"... {len(ordered) - MOST_ROWS} more")
    lines.append(", ".join(f"{counted[outcome]} {outcome}" for outcome in GRAVEST_FIRST if counted[outcome]))
    return "\n".join(lines) + "\n"


def _claim(verdict: Verdict) -> str:
    claim = verdict.claim
    return f"{claim.impl} >= {claim.at_least:g} x {claim.over}" if claim.over else f"{claim.impl} is right"
