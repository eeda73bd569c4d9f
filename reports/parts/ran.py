"""Who was right in a run, and what became of the others, by norm."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cases.unfused import WITH_TORCH
from harness.results.schema import RANKED, ErrorClass, Status
from reports import figures
from reports.data.checks import worst_class
from reports.data.comparison import Comparison
from reports.data.outcomes import FAILED, WORDS, Outcome, norms, of_comparison, tally, tried
from reports.parts import wording
from reports.table import Table, table, words


def failed(comparison: Comparison) -> str:
    """A sentence of those that ran and failed, without reasons; empty where there are none."""
    found = {impl: tally(of_impl) for impl, of_impl in tried(of_comparison(comparison)).items()}
    said = [
        f"{impl} ({WORDS[status]} in {counts[status]} of {figures.count(sum(counts.values()), 'case')})"
        for impl, counts in found.items()
        for status in FAILED
        if counts[status]
    ]
    return f"Not ranked where it failed: {', '.join(said)}." if said else ""


def outcomes(comparison: Comparison) -> Table:
    """Of how many cases of a norm each implementation was right, refused, wrong or crashed."""
    found = of_comparison(comparison)
    rows = [
        [impl, *(_cell([each for each in of_impl if each.case.norm == norm]) for norm in norms(found))]
        for impl, of_impl in tried(found).items()
    ]
    return table(words("impl", *norms(found)), rows)


def reasons(comparison: Comparison) -> list[str]:
    """A sentence for each way in which an implementation failed, and one of those that were missing."""
    found = of_comparison(comparison)
    ran = tried(found)
    absent = (each.impl for each in found if each.status == "missing" and each.impl not in ran)
    failures = [line for impl, of_impl in ran.items() for line in _failures(impl, of_impl)]
    return [*failures, *wording.missing(impl for impl in absent if not impl.endswith(WITH_TORCH))]


def _cell(outcomes: Sequence[Outcome]) -> str:
    """How many cases had which outcome, and behind those that were right the worst class of a gradient."""
    said: list[str] = []
    for status, number in tally(outcomes).items():
        of_status = [each for each in outcomes if each.status == status]
        said.append(f"{number} {WORDS[status]}{_classes(of_status) if status in RANKED else ''}")
    return "; ".join(said)


def _classes(outcomes: Sequence[Outcome]) -> str:
    """The gradients that were less than exact in any of these cases, each with its worst class."""
    worst: dict[str, ErrorClass | None] = {}
    for outcome in outcomes:
        for name, error in outcome.checked.errors.items():
            worst[name] = worst_class((worst.get(name), error.error_class))
    marks = [f"{name}{figures.EXTRA_ROUNDINGS[found]}" for name, found in worst.items() if found and found != "exact"]
    return f": {', '.join(marks)}" if marks else ""


def _failures(impl: str, outcomes: Sequence[Outcome]) -> list[str]:
    """One sentence for each way in which it failed: in how many cases, and the reason in the first of them."""
    found: dict[Status, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.status in FAILED:
            found.setdefault(outcome.status, []).append(outcome)
    return [
        f"{impl}: {WORDS[status]} in {figures.count(len(of_status), 'case')}, first {of_status[0].case.key}: "
        f"{figures.one_line(of_status[0].reason)}."
        for status, of_status in found.items()
    ]
