"""What did not pass and what did not run, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.analysis.case_comparison import Entry
from harness.analysis.comparison import Comparison
from harness.cases.unfused import WITH_TORCH
from reports import figures


def failures(comparison: Comparison) -> list[str]:
    """One sentence for each way in which an implementation did not pass."""
    return [
        f"{failure.impl}: {failure.status} in {figures.count(len(failure.cases), 'case')} "
        f"({'in the first: ' if failure.varies else ''}{figures.one_line(failure.reason)}): {', '.join(failure.cases)}"
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
    return " ".join([*lines, *missing(entry.impl for entry in absent if entry.status == "missing")])


def missing(impls: Iterable[str]) -> list[str]:
    """A sentence that names the implementations that are not installed; empty where all are."""
    names = list(dict.fromkeys(impls))
    return [f"Missing: {', '.join(names)} (`normbwd list impls` says how to install each)."] if names else []
