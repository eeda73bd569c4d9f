"""A verification as a page for a browser: the sections of its markdown, with what is behind every outcome on demand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import join_outcomes, norms
from harness.cases import Norm
from reports.formats import verification
from reports.formats.html_page import conditions_of, fill, pictures
from reports.parts import answers, caveats
from reports.table import Cell, Table

TEMPLATE = "verification.html"
# The columns that a row is filtered by. Cases stand under one head or another, by what tells them apart.
FILTERED = {"norm": "norm", "impl": "impl", "case": "case", "inputs": "case", "kind": "case"}


def render(runs: Sequence[Comparison]) -> str:
    """The page as HTML text; raises UsageError where the files are of different devices."""
    from reports.plots.precision import precision  # imports matplotlib: seconds

    all_outcomes = join_outcomes(runs)
    plots = precision(all_outcomes, runs[-1].run)
    return fill(
        TEMPLATE,
        title=verification.title(runs),
        headline=answers.verified(all_outcomes),
        caveats=[caveat for comparison in runs for caveat in caveats.caveats(comparison)],
        conditions=[conditions_of(comparison) for comparison in runs],
        sections=verification.sections(runs, all_outcomes),
        chance=verification.chance(all_outcomes),
        pictures=pictures((f"precision-{norm}", figure) for norm, figure in plots.items()),
        norms=norms(all_outcomes),
        impls=list(dict.fromkeys(outcome.impl for outcome in all_outcomes)),
        marks=marks,
        absent=False,
        example="nan-x",
    )


def marks(table: Table, row: Sequence[Cell]) -> dict[str, str]:
    """The attributes by which a row is filtered."""
    named = zip(table.heads, row, strict=True)
    filters = {FILTERED[head]: cell.text for head, cell in named if head in FILTERED}
    if "norm" not in filters and (norm := re.split(r"\W", filters.get("case", ""))[0]) in get_args(Norm):
        filters["norm"] = norm  # which the name of a case begins with
    return {f"data-{name}": text for name, text in filters.items()}
