"""The comparison for a person at a terminal; the full detail is in the markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.checks import join_files
from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import Outcome, by_impl, join_outcomes, norms, tally, tried
from harness.cases import Norm
from harness.cases.tensors import headings as short_names
from harness.records.reason_texts import sentence
from harness.records.schema import FAILED, RANKED, Status
from reports import columns, figures
from reports.columns import Row
from reports.labels import first_word, same_bits
from reports.parts import answers, caveats, conditions, reasons, training_step
from reports.parts.geomeans import geomeans
from reports.parts.matrix import not_tried
from reports.table import Heading, Table, left, table
from reports.terminal import WIDTH, captured, print_line, print_table

MOST_CASES_IN_FULL = 12  # beyond, a table for each case fills many screens: one line for each case instead
MOST_FAILURES = 12  # of one implementation: one that is wrong on everything would scroll the others away
COUNTS: dict[str, tuple[Status, ...]] = {
    "right": ("ok",),
    "nondet.": ("nondeterministic",),
    "refused": ("unsupported",),
    "wrong": ("wrong",),
    "failed": ("impossible", "crashed", "timeout", "oom"),
}


def show(comparison: Comparison, console: Console) -> None:
    """Print the cases, then the summary, then what a reader must know."""
    print_line(console, answers.correctness(comparison) or answers.headline(comparison), "bold")
    console.print()
    if not comparison.timed:
        _verified(comparison, console)
    elif len(comparison.cases) > MOST_CASES_IN_FULL:
        _overview(comparison, console)
    else:
        for case in comparison.cases:
            _case(comparison, case, console)
    if comparison.timed:
        if absent := reasons.not_run(comparison):
            print_line(console, absent, "dim")
            console.print()
        _summary(comparison, console)
        _in_a_training_step(comparison, console)
    for caveat in caveats.caveats(comparison):
        print_line(console, caveat, "bold yellow")
    print_line(console, answers.headline(comparison), "bold")
    if budget := conditions.error_budget(comparison):
        print_line(console, budget)
    print_line(console, _legend(comparison), "dim")


def render(comparison: Comparison, width: int = WIDTH) -> str:
    """The same as plain text of that width."""
    return captured(lambda console: show(comparison, console), width)


def _case(comparison: Comparison, case: CaseComparison, console: Console) -> None:
    add = f"{conditions.add_and_copy(case)}, {conditions.aa_band(case)}"
    title = f"{case.case.key}   {add}"
    if rows := columns.passed(comparison, case):
        print_table(console, columns.table_of(columns.CONSOLE, rows), title)
    else:
        print_line(console, f"{title}: nothing passed")
    for entry in case.of("unranked", "verified"):
        if entry.reason and entry.reason != case.interference:  # which stands once below
            print_line(console, f"  {entry.impl}: {figures.one_line(entry.reason)}")
    console.print()


def _overview(comparison: Comparison, console: Console) -> None:
    """A line for each case: what is first, by how much over the baseline and over the next."""
    for norm in dict.fromkeys(case.case.norm for case in comparison.cases):
        rows = [Row(comparison, case, case.fastest) for case in comparison.cases if case.case.norm == norm]
        title = f"{norm}: the {first_word(comparison)} of each case"
        print_table(console, columns.table_of(columns.OVERVIEW, rows), title)
        console.print()


def _summary(comparison: Comparison, console: Console) -> None:
    if comparison.summary.geomeans:
        print_table(console, geomeans(comparison))
    for tokens, spent in training_step.tables_by_tokens(comparison).items():
        print_table(console, spent, f"{training_step.MODELS}, ms, {tokens}")
    for failure in reasons.failure_lines(comparison):
        print_line(console, figures.one_line(failure, 400), "red")


def _in_a_training_step(comparison: Comparison, console: Console) -> None:
    if (section := training_step.section(comparison)) is None:
        return
    console.print()
    print_line(console, section.title, "bold")
    for part in section.parts:
        if isinstance(part, Table):
            print_table(console, part)
        elif isinstance(part, str):
            print_line(console, part)
    console.print()


def _legend(comparison: Comparison) -> str:
    checked = f"rho: error over what cannot be avoided, {figures.LEGEND}; n: runs with the same bits"
    compared = comparison.timed and not caveats.nothing_ranked(comparison)
    return f"speedup over {comparison.baseline}; {checked}" if compared else checked


def _verified(comparison: Comparison, console: Console) -> None:
    """Print a table for each norm: a line for each implementation; then what failed, and what did not run, and why."""
    outcomes = join_outcomes([comparison])
    for norm in norms(outcomes):
        of_norm = [outcome for outcome in outcomes if outcome.case.norm == norm]
        cases = len({outcome.case for outcome in of_norm})
        if (counts := _counts_of(of_norm, norm)).rows:
            print_table(console, counts, f"{norm}: {figures.count(cases, 'case')}")
            console.print()
    failures, absences = _failures(outcomes), [*_absences(outcomes), not_tried(outcomes)]
    for line in failures:
        print_line(console, figures.one_line(line, WIDTH), "red")
    for line in absences:
        print_line(console, line, "dim")
    console.print()


def _counts_of(outcomes: Sequence[Outcome], norm: Norm) -> Table:
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
    return columns.rhos(checked, tensors)


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
        failed = reasons.failures(of_impl, FAILED)
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
    absent = reasons.refusals(outcomes)
    lines: dict[str, list[str]] = {}
    for (impl, status, reason), cases in absent.items():
        if status != "missing":
            lines.setdefault(impl, []).append(f"on {figures.count(cases, 'case')}: {sentence(reason)}")
    gone = reasons.missing(impl for impl, status, _ in absent if status == "missing")
    refused = (f"Not run: {impl} {', '.join(why)}" for impl, why in lines.items())
    return [*(figures.one_line(line, WIDTH) for line in refused), *gone]
