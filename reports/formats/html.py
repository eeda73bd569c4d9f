"""The report as one page for a browser: no network, no server, sortable and filtered where it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.results.file import Results
from harness.results.schema import ErrorClass
from reports import figures
from reports.data.checks import worst_error
from reports.data.comparison import CaseComparison, Comparison, compare
from reports.data.entries import Entry
from reports.formats import html_verified
from reports.formats.html_page import conditions_of, fill, pictures
from reports.parts import wording
from reports.parts.geomeans import geomeans
from reports.parts.reasons import behind
from reports.table import Cell

TEMPLATE = "comparison.html"


@dataclass(frozen=True)
class Row:
    """One implementation on one case; `why` is what a reader may ask for: reason, notes and errors in full."""

    norm: str
    impl: str
    standing: str
    cells: tuple[Cell, ...]
    why: tuple[str, ...]


HEADS = (
    ("case", "text"),
    ("norm", "text"),
    ("rows", "number"),
    ("cols", "number"),
    ("impl", "text"),
    ("status", "text"),
    ("us", "number"),
    ("speedup [95 %]", "number"),
    ("verdict", "text"),
    ("GB/s", "number"),
    ("% of add", "number"),
    ("rho, worst", "number"),
    ("same bits", "text"),
)


def render(runs: Sequence[Results], baseline: str | None = None) -> str:
    """The page as HTML text, its plots in it: the comparison of one file, or the verification where nothing was timed.

    Raises UsageError where several files hold times, or are of different devices.
    """
    compared = [compare(run, baseline) for run in runs]
    if not any(comparison.timed for comparison in compared):
        return html_verified.render(runs, compared)
    if len(runs) > 1:
        raise UsageError(
            f"--format html takes one file that was timed, or several of `normbwd verify`, not {len(runs)}"
        )
    return _comparison(runs[0], compared[0])


def _comparison(results: Results, comparison: Comparison) -> str:
    from reports.plots.draw import overall  # imports matplotlib: seconds

    found = rows(comparison)
    return fill(
        TEMPLATE,
        title=f"Norm backward on {comparison.run.device.name}",
        headline=wording.headline(comparison),
        caveats=wording.caveats(comparison),
        conditions=[conditions_of(comparison)],
        means=geomeans(comparison),
        baseline=comparison.baseline,
        pictures=pictures(overall(results, comparison)),  # the bars of every case would be too many
        heads=HEADS,
        rows=found,
        legend=figures.LEGEND,
        budget=wording.error_budget(comparison),
        norms=list(dict.fromkeys(row.norm for row in found)),
        impls=list(dict.fromkeys(row.impl for row in found)),
        absent=True,
        example="8192x",
    )


def rows(comparison: Comparison) -> list[Row]:
    """A row for every implementation on every case, in the order of the comparison."""
    return [_row(comparison, case, entry) for case in comparison.cases for entry in case.entries]


def _row(comparison: Comparison, case: CaseComparison, entry: Entry) -> Row:
    is_base = entry.standing == "ranked" and entry.impl == comparison.baseline
    speedup = entry.speedup
    worst, error_class = _worst(entry)
    cells = (
        Cell(case.case.key),
        Cell(case.case.norm),
        Cell(str(case.case.rows), case.case.rows),
        Cell(str(case.case.cols), case.case.cols),
        Cell(entry.label),
        Cell(entry.status),
        Cell(figures.microseconds(entry.median_us), entry.median_us),
        Cell("base", 1.0) if is_base else Cell(figures.ratio_and_interval(speedup), speedup.value if speedup else None),
        Cell(entry.verdict or figures.NOTHING),
        Cell(figures.gbps(entry.bandwidth_gbps), entry.bandwidth_gbps),
        Cell(figures.percent(entry.percent_of_add), entry.percent_of_add),
        Cell(figures.rho(worst, error_class), worst),
        Cell(entry.checked.bits),
    )
    return Row(case.case.norm, entry.impl, entry.standing, cells, (*behind(entry.reason, entry.checked), *entry.notes))


def _worst(entry: Entry) -> tuple[float | None, ErrorClass]:
    """The largest rho of the gradients, and the class of the worst."""
    errors = list(entry.checked.errors.values())
    return (worst_error(errors).rho, entry.checked.error_class or "exact") if errors else (None, "exact")
