"""What the flush changes: runs of the same cases with different flushes, set beside the one with a clean cache.

Runs are never put into one ratio: only the quotient of two medians is shown, without an interval, and verdicts that
each run reached by itself are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis import figures
from harness.analysis.comparison import CaseComparison, Comparison, compare
from harness.analysis.statistics import Ratio, geomean
from harness.cases import Norm, NormCase
from harness.cases.traffic import ADD_NAME
from harness.errors import UsageError
from harness.records.file import Results
from harness.records.schema import Flush
from reports.markdown_writer import paragraphs, table
from reports.parts import provenance
from reports.studies.orders import CaseInRun, Order, clear_orders
from reports.table import words

ABOUT = (
    "Changes are quotients of the medians of different runs, so they have no interval. Rankings are what each run "
    "found by itself, inside its own blocks and beyond its own A/A band; but what differs from process to process "
    "(addresses, what a compiler tuned) differs between runs too, and turns a close pair as well. Elements: of x, from "
    "the power of two that is named to the next."
)


@dataclass(frozen=True)
class Turned:
    """A pair of implementations in one case: `first` is clearly faster than `second` with a clean cache.

    `clean` and `other` are the speedups of first over second in the two runs; `reversed` where the other run finds it
    clearly slower, otherwise it finds no difference.
    """

    case: NormCase
    first: str
    second: str
    clean: Ratio
    other: Ratio
    reversed: bool


def render(runs: Sequence[Results]) -> str:
    """The study as markdown; raises UsageError where the runs cannot be set beside each other."""
    modes = _modes(runs)
    clean = modes.pop("clean")
    before, orders = compare(clean), clear_orders(clean)
    parts = [provenance.heading("Flushes", *(run.run for run in runs)), ABOUT]
    for mode, run in modes.items():
        after = compare(run)
        parts.append(f"## {mode} over clean: change of time, %")
        norms: dict[Norm, None] = dict.fromkeys(case.case.norm for case in before.cases)
        parts += [_changes_table(before, after, norm) for norm in norms]
        parts += [f"## Rankings that {mode} turns", *_rankings(_turned_of(orders, run), before, after)]
    return paragraphs(parts)


def changes(before: Comparison, after: Comparison) -> dict[tuple[Norm, int, str], list[float]]:
    """Time after over time before of every case in both, by norm, band of sizes and implementation."""
    later = {case.case: case for case in after.cases}
    quotients: dict[tuple[Norm, int, str], list[float]] = {}
    for case in before.cases:
        if case.case not in later:
            continue
        times, others = _times(case), _times(later[case.case])
        for impl in (impl for impl in times if impl in others):
            key = case.case.norm, _band_of_sizes(case.case), impl
            quotients.setdefault(key, []).append(others[impl] / times[impl])
    return quotients


def turned(clean: Results, other: Results) -> list[Turned]:
    """The pairs whose order is clear with a clean cache, and reversed or lost in the other run."""
    return _turned_of(clear_orders(clean), other)


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


def _changes_table(before: Comparison, after: Comparison, norm: Norm) -> str:
    quotients = {key[1:]: values for key, values in changes(before, after).items() if key[0] == norm}
    bands = sorted({size for size, _ in quotients}, reverse=True)
    impls = list(dict.fromkeys(impl for _, impl in quotients))
    impls.sort(key=lambda impl: (impl != ADD_NAME, impl))
    rows = [
        [norm, figures.elements(size), str(max(len(quotients.get((size, impl), ())) for impl in impls))]
        + [_change(quotients.get((size, impl), [])) for impl in impls]
        for size in bands
    ]
    return table([*words("norm"), "elements", "cases", *impls], rows)


def _change(quotients: Sequence[float]) -> str:
    return figures.change(geomean(quotients)) if quotients else figures.NOTHING


def _times(case: CaseComparison) -> dict[str, float]:
    times = {entry.impl: entry.median_us for entry in case.ranked if entry.median_us}
    return times | ({ADD_NAME: case.add_us} if case.add_us else {})


def _band_of_sizes(case: NormCase) -> int:
    elements = max(1, case.rows * case.cols)
    return 1 << (elements.bit_length() - 1)


def _rankings(changed: Sequence[Turned], before: Comparison, after: Comparison) -> list[str]:
    reversals = [pair for pair in changed if pair.reversed]
    mode = after.run.settings.flush
    headings = [*words("case", "faster with clean", "than"), "clean [95 %]", f"{mode} [95 %]"]
    rows = [
        [pair.case.key, pair.first, pair.second, *(figures.ratio_and_interval(r) for r in (pair.clean, pair.other))]
        for pair in reversals
    ]
    counted = (
        f"{figures.count(len(reversals), 'pair')} reversed; "
        f"{figures.count(len(changed) - len(reversals), 'pair')} that can no longer be told apart."
    )
    return [counted, table(headings, rows), _fastest(before, after)]


def _fastest(before: Comparison, after: Comparison) -> str:
    """The cases in which another implementation is fastest; marked where neither run calls that a tie."""
    later: Mapping[NormCase, CaseComparison] = {case.case: case for case in after.cases}
    rows: list[list[str]] = []
    for case in before.cases:
        other = later.get(case.case)
        if other is None or case.lead is None or other.lead is None or case.lead.impl == other.lead.impl:
            continue
        tie = other.lead.impl in case.lead.tied_with or case.lead.impl in other.lead.tied_with
        rows.append(
            [case.case.key, case.lead.impl, other.lead.impl, "a tie in one of them" if tie else "clear in both"]
        )
    both = sum(case.case in later for case in before.cases)
    counted = f"Another implementation is fastest in {len(rows)} of {figures.count(both, 'case')}."
    headings = words("case", "fastest with clean", f"fastest with {after.run.settings.flush}", "how")
    return "\n\n".join(part for part in (counted, table(headings, rows)) if part)


def _turned_of(orders: Sequence[Order], other: Results) -> list[Turned]:
    cases = CaseInRun.all_of(other)
    changed: list[Turned] = []
    for order in orders:
        after = cases[order.case].speedup(order.first, order.second) if order.case in cases else None
        if after is not None and after[1] != "faster":
            changed.append(Turned(order.case, order.first, order.second, order.speedup, after[0], after[1] == "slower"))
    return changed
