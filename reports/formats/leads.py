"""The in-house kernel's lead over the best other row under every condition: a row a case, a column a condition."""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis.comparison import Comparison
from harness.analysis.machines import RUN_BAND, place
from harness.analysis.statistics import geomean
from harness.analysis.step import every_context
from harness.cases import NormCase
from harness.errors import UsageError
from harness.records.contexts import COLD
from reports import figures
from reports.markdown_writer import paragraphs, table
from reports.parts import conditions
from reports.table import left

ABOUT = (
    "How many times as fast as the fastest other row that ran, by the ratio inside blocks. =: the interval reaches "
    "into {band}, what two runs differ by, or into the A/A band. -: not measured, or no verdict. A column is of the "
    "first file that has it; other files may have other rows. Clean, dirty and none are flushes of the cache before a "
    "backward alone; the other columns are contexts. The mean is of the cases that all columns have."
)


def render(runs: Sequence[Comparison]) -> str:
    """The page as markdown; of a condition that several files have, the first counts.

    Raises UsageError where the files hold no lead.
    """
    columns: dict[str, dict[NormCase, str]] = {}
    leads: dict[str, dict[NormCase, float]] = {}
    for run in runs:
        for comparison in every_context(run):
            flush = comparison.run.settings.flush
            name = flush if comparison.context == COLD else comparison.context + (f", {flush}" * (flush != "clean"))
            if name in columns:
                continue
            places = {case.case: place(case) for case in comparison.cases}
            leads[name] = {case: each.lead for case, each in places.items() if each.lead is not None}
            columns[name] = {
                case: figures.plain_ratio(each.lead) + (" =" if each.said == "tied" else "")
                for case, each in places.items()
            }
    shown = [name for name in columns if leads[name]]
    if not shown:
        raise UsageError("--format leads needs files in which the in-house kernel and another rank; give such files")
    cases = dict.fromkeys(case for name in shown for case in columns[name])
    rows = [[case.key, *(columns[name].get(case, figures.NOTHING) for name in shown)] for case in cases]
    common = [case for case in cases if all(case in leads[name] for name in shown)]
    means = [geomean([leads[name][case] for case in common]) for name in shown] if common else []
    rows += [[f"geometric mean of {len(common)}", *map(figures.plain_ratio, means)]] if common else []
    return paragraphs(
        [
            conditions.heading("The lead under every condition", *(run.run for run in runs)),
            ABOUT.format(band=figures.band(RUN_BAND)),
            table([*left("case"), *shown], rows),
        ]
    )
