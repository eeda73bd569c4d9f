"""A verification at a terminal: a line for each implementation, then one for each case that failed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from harness.analysis.checks import join_files
from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import FAILED, Outcome, by_impl, join_outcomes, norms, tally, tried
from harness.cases import Norm
from harness.cases.tensors import headings as short_names
from harness.records.reason_texts import sentence
from harness.records.schema import RANKED, Status
from reports import figures
from reports.labels import same_bits
from reports.parts import not_passed
from reports.parts.matrix import not_tried
from reports.parts.reasons import failures, refusals
from reports.table import Heading, Table, left, table
from reports.terminal import WIDTH, print_line, print_table

MOST_FAILURES = 12  # of one implementation: one that is wrong on everything would scroll the others away
COUNTS: dict[str, tuple[Status, ...]] = {
    "right": ("ok",),
    "nondet.": ("nondeterministic",),
    "refused": ("unsupported",),
    "wrong": ("wrong",),
    "failed": ("impossible", "crashed", "timeout", "oom"),
}


def show(comparison: Comparison, console: Console) -> None:
    """Print a table for each norm, then what failed and why, then what did not run and why."""
    outcomes = join_outcomes([comparison])
    for norm in norms(outcomes):
        of_norm = [outcome for outcome in outcomes if outcome.case.norm == norm]
        cases = len({outcome.case for outcome in of_norm})
        if (counts := _table(of_norm, norm)).rows:
            print_table(console, counts, f"{norm}: {figures.count(cases, 'case')}")
            console.print()
    failures, absences = _failures(outcomes), [*_absences(outcomes), not_tried(outcomes)]
    for line in failures:
        print_line(console, figures.one_line(line, WIDTH), "red")
    for line in absences:
        print_line(console, line, "dim")
    console.print()


def _table(outcomes: Sequence[Outcome], norm: Norm) -> Table:
    """A column of counts that are all 0 is left out, and the line of an implementation that was never tried."""
    tensors = short_names(name for outcome in outcomes for name in outcome.checked.errors)
    headings = [*left("impl"), *COUNTS, Heading("rho " + "/".join(tensors.values()), drop=2)]
    headings.append(Heading("same bits", drop=1))
    rows = [
        [impl, *_counts(of_impl), _rho(of_impl, list(tensors)), _bits(of_impl)]
        for impl, of_impl in tried(outcomes).items()
    ]
    return table(headings, rows, norm).used()


def _counts(outcomes: Sequence[Outcome]) -> list[str]:
    counts = tally(outcomes)
    numbers = [sum(counts[status] for status in statuses) for statuses in COUNTS.values()]
    return [str(number) if number else figures.NOTHING for number in numbers]


def _rho(outcomes: Sequence[Outcome], tensors: Sequence[str]) -> str:
    """The worst of each gradient on the usual inputs, with the mark of the worst class."""
    checked = join_files([outcome.checked for outcome in outcomes if outcome.normal and outcome.checked.errors])
    if checked.error_class is None:
        return figures.NOTHING
    errors = [checked.errors.get(name) for name in tensors]
    numbers = "/".join(figures.rho(error.rho if error else None) for error in errors)
    return numbers + figures.EXTRA_ROUNDINGS[checked.error_class]


def _bits(outcomes: Sequence[Outcome]) -> str:
    """Of the case in which bits differed most often, or else of the one that was run most often."""
    checks = [outcome.checked for outcome in outcomes if outcome.status in RANKED]
    if not checks:
        return figures.NOTHING
    return same_bits(max(checks, key=lambda checked: (checked.differing, checked.moved, checked.repeats)))


def _failures(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each failure, up to MOST_FAILURES of one implementation."""
    lines: list[str] = []
    for impl, of_impl in by_impl(outcomes).items():
        failed = failures(of_impl, FAILED)
        lines += [
            f"{impl}: {failure.case}: {failure.status}, {sentence(failure.reason)}"
            for failure in failed[:MOST_FAILURES]
        ]
        if len(failed) > MOST_FAILURES:
            more = figures.count(len(failed) - MOST_FAILURES, "more case")
            lines.append(f"{impl}: … {more} in --format verification")
    return lines


def _absences(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each implementation: why it refuses, and on how many cases; then one for all that are missing."""
    absent = refusals(outcomes)
    lines: dict[str, list[str]] = {}
    for (impl, status, reason), cases in absent.items():
        if status != "missing":
            lines.setdefault(impl, []).append(f"on {figures.count(cases, 'case')}: {sentence(reason)}")
    gone = not_passed.missing(impl for impl, status, _ in absent if status == "missing")
    refused = (f"Not run: {impl} {', '.join(reasons)}" for impl, reasons in lines.items())
    return [*(figures.one_line(line, WIDTH) for line in refused), *gone]
