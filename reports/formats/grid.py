"""All times of a run on one page: a row for each case, a column for each implementation, the fastest in bold."""

from __future__ import annotations

from harness.cases import Norm
from reports import figures
from reports.column import Row
from reports.columns import COLUMNS
from reports.data.comparison import CaseComparison, Comparison
from reports.markdown_writer import paragraphs, table, write_section, write_table
from reports.parts import models, training_step
from reports.parts.conditions import conditions_list
from reports.parts.geomeans import geomeans
from reports.sentences import answers, caveats, not_passed, yardsticks
from reports.table import words

UNSTEADY = " †"
UNRANKED = " ‡"


def render(comparison: Comparison) -> str:
    """The page as GitHub-flavoured markdown: headline, times, geometric means, models and contexts, conditions."""
    warned = [f"**{caveat}**" for caveat in caveats.caveats(comparison)]
    norms: dict[Norm, None] = dict.fromkeys(case.case.norm for case in comparison.cases)
    parts = [answers.headline(comparison), *warned, *(_times(comparison, norm) for norm in norms)]
    if comparison.timed:
        parts += [_legend(comparison), yardsticks.error_budget(comparison), write_table(geomeans(comparison))]
    for section in filter(None, (models.section(comparison), training_step.section(comparison))):
        parts += write_section(section)
    parts += ["\n".join(f"- {failure}" for failure in not_passed.failures(comparison)), conditions_list(comparison)]
    return paragraphs(parts)


def _times(comparison: Comparison, norm: Norm) -> str:
    """Median us of one norm; columns from the best geometric mean to the worst, as far as a time is known."""
    cases = [case for case in comparison.cases if case.case.norm == norm]
    means = {mean.impl: mean.value for mean in comparison.summary.geomeans if mean.norm == norm}
    names = {entry.impl for case in cases for entry in case.of("ranked", "unranked")}
    impls = sorted(names, key=lambda name: (-means.get(name, 0.0), name))
    known = [COLUMNS["copy_us"]] if any(case.copy_us for case in cases) else []
    of_case = [COLUMNS["case"], COLUMNS["add_us"], *known]
    rows = [
        [
            *(column.cell(Row(comparison, case, None)).text for column in of_case),
            *(_marked_time(case, impl) for impl in impls),
        ]
        for case in cases
    ]
    return table([*words("case"), "add us", *(["copy us"] if known else []), *impls], rows) if impls else ""


def _marked_time(case: CaseComparison, impl: str) -> str:
    entry = case.entry(impl)
    if entry is None or entry.standing == "absent":
        return figures.NOTHING
    if entry.standing == "unranked":
        return figures.microseconds(entry.median_us) + UNRANKED
    if entry.standing != "ranked":
        return entry.status
    text = figures.microseconds(entry.median_us) + (UNSTEADY if entry.status == "nondeterministic" else "")
    best = case.lead is not None and (impl == case.lead.impl or impl in case.lead.tied_with)
    return f"**{text}**" if best else text


def _legend(comparison: Comparison) -> str:
    shown_only = any(case.of("unranked") for case in comparison.cases)
    unranked = f" {UNRANKED.strip()}: shown, not ranked (the full report says why)." if shown_only else ""
    return (
        "Median us of the backward alone, cold cache; **bold**: the fastest, and what cannot be told from it; add: an "
        "elementwise add with the same traffic, a yardstick and no bound; copy: the same bytes at the rate of a large "
        f"copy;{UNSTEADY}: other bits from run to run. "
        f"A/A bands: {yardsticks.aa_bands(comparison.cases)}.{unranked}"
    )
