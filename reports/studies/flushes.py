"""What the flush changes: runs of the same cases with different flushes against the one with a clean cache.

Runs are never put into one ratio: only the quotient of two medians is shown, without an interval, and verdicts that
each run reached by itself are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis import figures
from harness.analysis.comparison import CaseComparison, Comparison, compare
from harness.analysis.joining import band, by_case
from harness.analysis.statistics import Ratio, geomean
from harness.cases import Norm
from harness.cases.traffic import ADD_NAME
from harness.errors import UsageError
from harness.records.file import Results
from harness.records.schema import Flush
from reports.markdown_writer import paragraphs, table
from reports.parts import provenance
from reports.studies.orders import Order, clear_orders, judge
from reports.table import words

ABOUT = (
    "Changes are quotients of the medians of different runs, so they have no interval. Orders are what each run calls "
    "clear by its own blocks and its own A/A band. What differs from process to process, such as addresses or what a "
    "compiler tuned, differs between runs too, and can turn a close pair. Elements: of x, from the power of two that "
    "is named to the next."
)
Changes = dict[tuple[Norm, int, str], list[float]]  # time after over time before, by norm, elements, implementation


@dataclass(frozen=True)
class Turned:
    """An order of the clean run that another run reverses or cannot confirm, with the speedup in that run."""

    clean: Order
    other: Ratio
    reversed: bool


def render(runs: Sequence[Results]) -> str:
    """The study as markdown; raises UsageError where the runs cannot be compared."""
    modes = _modes(runs)
    clean = modes.pop("clean")
    before, orders = compare(clean), clear_orders(clean)
    parts = [provenance.heading("Flushes", *(run.run for run in runs)), ABOUT]
    for mode, run in modes.items():
        changed = changes(before, compare(run))
        parts.append(f"## {mode} over clean: change of time, %")
        parts += [_changes_table(changed, norm) for norm in dict.fromkeys(norm for norm, _, _ in changed)]
        parts += [f"## Orders that {mode} turns", *_turned_table(turned(orders, run), mode)]
    return paragraphs(parts)


def changes(before: Comparison, after: Comparison) -> Changes:
    """Time after over time before of every case in both."""
    later = {case.case: case for case in after.cases}
    quotients: Changes = {}
    for case in (case for case in before.cases if case.case in later):
        elements = 1 << (max(1, case.case.rows * case.case.cols).bit_length() - 1)
        times, others = _times(case), _times(later[case.case])
        for impl in (impl for impl in times if impl in others):
            quotients.setdefault((case.case.norm, elements, impl), []).append(others[impl] / times[impl])
    return quotients


def turned(orders: Sequence[Order], other: Results) -> list[Turned]:
    """The clear orders that the other run reverses or cannot confirm."""
    rows = by_case(other)
    bands = {case: band(joined, other.run.settings.baseline) for case, joined in rows.items()}
    found: list[Turned] = []
    for order in (order for order in orders if order.case in rows):
        judged = judge(rows[order.case], bands[order.case], order.first, order.second)
        if judged is not None and judged[1] != "faster":
            found.append(Turned(order, judged[0], judged[1] == "slower"))
    return found


def _modes(runs: Sequence[Results]) -> dict[Flush, Results]:
    modes: dict[Flush, Results] = {}
    for run in runs:
        mode = run.run.settings.flush
        if mode in modes:
            raise UsageError(f"two of the files have the flush {mode}; give one file a flush")
        modes[mode] = run
    if "clean" not in modes or len(modes) < 2:
        raise UsageError("the flush study needs a file with the flush clean, and one or two others; give them all")
    for what, names in (
        ("devices", {run.run.device.name for run in runs}),
        ("suites", {run.run.settings.suite or "none" for run in runs}),
    ):
        if len(names) > 1:
            raise UsageError(f"the files are of different {what} ({', '.join(sorted(names))}); give runs of one")
    if not set.intersection(*({row.case for row in run.rows} for run in runs)):
        raise UsageError("the files have no case in common; give runs of the same cases")
    return modes


def _times(case: CaseComparison) -> dict[str, float]:
    times = {entry.impl: entry.median_us for entry in case.ranked if entry.median_us}
    return times | ({ADD_NAME: case.add_us} if case.add_us else {})


def _changes_table(changed: Changes, norm: Norm) -> str:
    quotients = {(elements, impl): values for (of, elements, impl), values in changed.items() if of == norm}
    impls = sorted({impl for _, impl in quotients}, key=lambda impl: (impl != ADD_NAME, impl))
    rows: list[list[str]] = []
    for elements in sorted({elements for elements, _ in quotients}, reverse=True):
        of_size = [quotients.get((elements, impl), []) for impl in impls]
        means = (figures.change(geomean(values)) if values else figures.NOTHING for values in of_size)
        rows.append([norm, figures.elements(elements), str(max(map(len, of_size))), *means])
    return table([*words("norm"), "elements", "cases", *impls], rows)


def _turned_table(turned: Sequence[Turned], mode: Flush) -> list[str]:
    reversals = [pair for pair in turned if pair.reversed]
    rows = [
        [
            pair.clean.case.key,
            pair.clean.first,
            pair.clean.second,
            *map(figures.ratio_and_interval, (pair.clean.speedup, pair.other)),
        ]
        for pair in reversals
    ]
    lost = figures.count(len(turned) - len(reversals), "pair")
    counted = f"{figures.count(len(reversals), 'pair')} reversed; {lost} without a clear order any more."
    return [counted, table([*words("case", "faster with clean", "than"), "clean [95 %]", f"{mode} [95 %]"], rows)]
