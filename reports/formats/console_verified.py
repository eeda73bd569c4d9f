"""What a verification found, at a terminal: a line an implementation, then a line for each case that failed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.cases import Norm
from harness.results.schema import RANKED, Status
from reports import figures
from reports.data.checks import join_files
from reports.data.comparison import Comparison
from reports.data.outcomes import FAILED, NOT_RUN, Outcome, by_impl, norms, of_comparison, tally
from reports.formats.console_table import fill, titled
from reports.parts.reasons import refusals

WIDTH = 120
MOST_FAILURES = 12  # of one implementation: one that is wrong on everything would scroll the others away
COLUMNS: dict[str, tuple[Status, ...]] = {
    "right": ("ok",),
    "nondet.": ("nondeterministic",),
    "refused": ("unsupported",),
    "wrong": ("wrong",),
    "failed": ("crashed", "timeout", "oom"),
}
TENSORS = {"dx": "dx", "dweight": "dw", "dbias": "db"}


def show(comparison: Comparison, console: Console) -> None:
    """Print a table a norm, then what failed and why, then what did not run and why."""
    found = of_comparison(comparison)
    for norm in norms(found):
        console.print(_table(norm, [outcome for outcome in found if outcome.case.norm == norm]))
        console.print()
    failed, absent = _failed(found), _absent(found)
    for lines, style in ((failed, "red"), (absent, "dim")):
        for line in lines:
            console.print(escape(figures.one_line(line, WIDTH)), style=style, highlight=False, soft_wrap=True)
    if failed or absent:
        console.print()


def _table(norm: Norm, found: Sequence[Outcome]) -> Table:
    """A column of counts that are all 0 is left out, and a line of an implementation that was never tried."""
    impls = {impl: of for impl, of in by_impl(found).items() if any(each.status not in NOT_RUN for each in of)}
    cases = len({outcome.case for outcome in found})
    table = titled(f"{norm}: {figures.count(cases, 'case')}")
    columns = [("impl", [escape(impl) for impl in impls])]
    for head, statuses in COLUMNS.items():
        counts = [sum(tally(of)[status] for status in statuses) for of in impls.values()]
        if head == "right" or any(counts):
            columns.append((head, [str(count) if count else figures.NOTHING for count in counts]))
    tensors = [name for name in TENSORS if any(name in outcome.checked.errors for outcome in found)]
    columns.append(("rho " + "/".join(TENSORS[name] for name in tensors), [_rho(of, tensors) for of in impls.values()]))
    columns.append(("same bits", [_bits(of) for of in impls.values()]))
    fill(table, columns)
    return table


def _rho(found: Sequence[Outcome], tensors: Sequence[str]) -> str:
    """The worst of each gradient on the usual inputs, with the mark of the worst class."""
    checked = join_files([outcome.checked for outcome in found if outcome.normal and outcome.checked.errors])
    if checked.error_class is None:
        return figures.NOTHING
    errors = [checked.errors.get(name) for name in tensors]
    numbers = "/".join(figures.rho(error.rho if error else None) for error in errors)
    return numbers + figures.EXTRA_ROUNDINGS[checked.error_class]


def _bits(found: Sequence[Outcome]) -> str:
    """Of the case in which bits differed most often, or else of the one that was run most often."""
    passed = [outcome.checked for outcome in found if outcome.status in RANKED]
    return max(passed, key=lambda each: (each.differing, each.moved, each.repeats)).bits if passed else figures.NOTHING


def _failed(found: Sequence[Outcome]) -> list[str]:
    """A line a case, up to MOST_FAILURES an implementation."""
    lines: list[str] = []
    for impl, of in by_impl(outcome for outcome in found if outcome.status in FAILED).items():
        lines += [f"{impl}: {each.case.key}: {each.status}, {each.reason or 'no reason given'}" for each in of][
            :MOST_FAILURES
        ]
        if len(of) > MOST_FAILURES:
            lines.append(f"{impl}: … {figures.count(len(of) - MOST_FAILURES, 'more case')} in --format verification")
    return lines


def _absent(found: Sequence[Outcome]) -> list[str]:
    """A line an implementation: why it refuses or is missing, and on how many cases."""
    lines: dict[str, list[str]] = {}
    for (impl, _, reason), cases in refusals(found).items():
        lines.setdefault(impl, []).append(f"on {figures.count(cases, 'case')}: {reason}")
    return [f"Not run: {impl} {', '.join(reasons)}" for impl, reasons in lines.items()]
