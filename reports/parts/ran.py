"""The outcomes of the implementations in a run, by norm: which were right, and how the others failed."""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis import figures
from harness.analysis.checks import other_bits, worst_class
from harness.analysis.comparison import Comparison
from harness.analysis.joining import OTHER_BITS
from harness.analysis.outcomes import FAILED, WORDS, Outcome, norms, of_comparison, tally, tried
from harness.cases.unfused import WITH_TORCH
from harness.records.schema import RANKED, ErrorClass, Status
from reports.sentences import not_passed
from reports.table import Table, table, words


def failed(comparison: Comparison) -> str:
    """A sentence about the implementations that ran and failed, without reasons; empty where there are none."""
    tallies = {impl: tally(of_impl) for impl, of_impl in tried(of_comparison(comparison)).items()}
    failures = [
        f"{impl} ({WORDS[status]} in {counts[status]} of {figures.count(sum(counts.values()), 'case')})"
        for impl, counts in tallies.items()
        for status in FAILED
        if counts[status]
    ]
    return f"Not ranked where it failed: {', '.join(failures)}." if failures else ""


def outcomes(comparison: Comparison) -> Table:
    """A table: in how many cases of each norm an implementation was right, refused, wrong or crashed."""
    all_outcomes = of_comparison(comparison)
    columns = norms(all_outcomes)
    rows = [
        [impl, *(_cell([outcome for outcome in of_impl if outcome.case.norm == norm]) for norm in columns)]
        for impl, of_impl in tried(all_outcomes).items()
    ]
    return table(words("impl", *columns), rows)


def reasons(comparison: Comparison) -> list[str]:
    """A sentence for each way in which an implementation failed, and one about those that were missing."""
    all_outcomes = of_comparison(comparison)
    ran = tried(all_outcomes)
    absent = (o.impl for o in all_outcomes if o.status == "missing" and o.impl not in ran)
    failures = [line for impl, of_impl in ran.items() for line in _failures(impl, of_impl)]
    return [*failures, *not_passed.missing(impl for impl in absent if not impl.endswith(WITH_TORCH))]


def _cell(outcomes: Sequence[Outcome]) -> str:
    """The number of cases for each outcome; for those that were right, with the worst class of each gradient."""
    alike: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        alike.setdefault(_word(outcome), []).append(outcome)
    return "; ".join(
        f"{len(found)} {word}{_classes(found) if found[0].status in RANKED else ''}" for word, found in alike.items()
    )


def _word(outcome: Outcome) -> str:
    moved = other_bits(outcome.status, outcome.checked) == OTHER_BITS
    return f"{WORDS['ok']} with {OTHER_BITS}" if moved else WORDS[outcome.status]


def _classes(outcomes: Sequence[Outcome]) -> str:
    """The gradients that were not exact in any of these cases, each with its worst class."""
    worst: dict[str, ErrorClass | None] = {}
    for outcome in outcomes:
        for name, error in outcome.checked.errors.items():
            worst[name] = worst_class((worst.get(name), error.error_class))
    marks = [
        f"{name}{figures.EXTRA_ROUNDINGS[error_class]}"
        for name, error_class in worst.items()
        if error_class and error_class != "exact"
    ]
    return f": {', '.join(marks)}" if marks else ""


def _failures(impl: str, outcomes: Sequence[Outcome]) -> list[str]:
    """A sentence for each status of a failure: in how many cases, and the reason in the first of them."""
    by_status: dict[Status, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.status in FAILED:
            by_status.setdefault(outcome.status, []).append(outcome)
    return [
        f"{impl}: {WORDS[status]} in {figures.count(len(of_status), 'case')}, first {of_status[0].case.key}: "
        f"{figures.one_line(of_status[0].reason)}."
        for status, of_status in by_status.items()
    ]
