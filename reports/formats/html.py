"""The report as one page for a browser: no network, no server, sortable and filtered where it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from harness.analysis.case_comparison import Entry
from harness.analysis.comparison import Comparison
from harness.errors import UsageError
from harness.records.reason_texts import sentence
from reports import columns, figures
from reports.columns import Row
from reports.formats import html_verified
from reports.formats.html_page import conditions_of, fill, pictures
from reports.kernel_names import display_names
from reports.parts import answers, caveats, models, training_step, yardsticks
from reports.parts.geomeans import norms_side_by_side
from reports.parts.reasons import details
from reports.table import Cell, Table

TEMPLATE = "comparison.html"
MOST_PICTURES = 6  # within the page, each of which takes a second


@dataclass(frozen=True)
class ResultRow:
    """One implementation on one case; `why` is what a reader may ask for: reason, errors, kernels and notes in full."""

    case: str
    norm: str
    impl: str
    standing: str
    cells: tuple[Cell, ...]
    why: tuple[str, ...]


def render(runs: Sequence[Comparison]) -> str:
    """The page as HTML text, its plots in it: the comparison of one file, or the verification where nothing was timed.

    Raises UsageError where several files hold times, or are of different devices.
    """
    if not any(comparison.timed for comparison in runs):
        return html_verified.render(runs)
    if len(runs) > 1:
        raise UsageError(
            f"--format html takes one file that was timed, or several of `normbwd verify`, not {len(runs)}"
        )
    return _comparison(runs[0])


def results_table(comparison: Comparison) -> tuple[Table, list[ResultRow]]:
    """A row for every implementation on every case, in the order of the comparison, and the table that they make."""
    rows = [(row, row.entry) for row in columns.rows_of(comparison) if row.entry]
    filled = columns.table_of(columns.HTML, [row for row, _ in rows])
    described = [
        ResultRow(row.case.case.key, row.case.case.norm, entry.impl, entry.standing, cells, _why(entry))
        for (row, entry), cells in zip(rows, filled.rows, strict=True)
    ]
    return filled, described


def cases_table(comparison: Comparison) -> Table:
    """A row for each case: who is fastest, and by how much."""
    return columns.table_of(columns.HTML_CASES, [Row(comparison, case, case.fastest) for case in comparison.cases])


def _comparison(comparison: Comparison) -> str:
    from reports.plots.draw import draw  # imports matplotlib: seconds

    filled, rows = results_table(comparison)
    drawn = pictures(islice(draw(comparison), MOST_PICTURES))
    return fill(
        TEMPLATE,
        title=f"Norm backward on {comparison.run.device.name}",
        headline=answers.headline(comparison),
        caveats=caveats.caveats(comparison),
        conditions=[conditions_of(comparison)],
        answer=norms_side_by_side(comparison),
        sections=list(filter(None, (models.section(comparison), training_step.section(comparison)))),
        baseline=comparison.baseline,
        speedups=[picture for picture in drawn if picture.name.startswith("speedup")],
        pictures=[picture for picture in drawn if not picture.name.startswith("speedup")],
        cases=cases_table(comparison),
        table=filled,
        rows=rows,
        legend=figures.LEGEND,
        budget=yardsticks.error_budget(comparison),
        norms=list(dict.fromkeys(row.norm for row in rows)),
        impls=list(dict.fromkeys(row.impl for row in rows)),
        absent=True,
        example="8192x",
    )


def _why(entry: Entry) -> tuple[str, ...]:
    return (*details(entry.reason, entry.checked), *_kernels(entry), *map(sentence, entry.notes))


def _kernels(entry: Entry) -> list[str]:
    """The kernels and their times in one line, in the order in which they run."""
    kernels = entry.kernels or ()
    names = display_names([kernel.name for kernel in kernels])
    parts = [f"{name} {figures.microseconds(kernel.median_us)} us" for name, kernel in zip(names, kernels, strict=True)]
    return [f"kernels: {', '.join(parts)}"] if parts else []
