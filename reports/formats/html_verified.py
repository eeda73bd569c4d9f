"""A verification as a page for a browser: the sections of its markdown, with what is behind every outcome on demand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from harness.cases import Norm
from harness.results.file import Results
from reports.data.comparison import Comparison
from reports.data.outcomes import norms, outcomes
from reports.formats import verification
from reports.formats.html_page import conditions_of, fill, pictures
from reports.parts import wording
from reports.table import Cell, Table

TEMPLATE = "verification.html"
# The columns that a row is filtered by. Cases stand under one head or another, by what tells them apart.
FILTERED = {"norm": "norm", "impl": "impl", "case": "case", "inputs": "case", "kind": "case"}


def render(runs: Sequence[Results], compared: Sequence[Comparison]) -> str:
    """The page as HTML text; raises UsageError where the files are of different devices."""
    from reports.plots.error_growth import precision  # imports matplotlib: seconds

    found = outcomes(runs)
    plots = precision(found, runs[-1].run)
    return fill(
        TEMPLATE,
        title=verification.title(runs),
        headline=wording.verified(found),
        caveats=[caveat for comparison in compared for caveat in wording.caveats(comparison)],
        conditions=[conditions_of(comparison) for comparison in compared],
        sections=verification.sections(runs, found),
        chance=verification.chance(found),
        pictures=pictures((f"precision-{norm}", figure) for norm, figure in plots.items()),
        norms=norms(found),
        impls=list(dict.fromkeys(outcome.impl for outcome in found)),
        marks=marks,
        absent=False,
        example="nan-x",
    )


def marks(table: Table, row: Sequence[Cell]) -> dict[str, str]:
    """The attributes by which a row is filtered."""
    named = zip(table.heads, row, strict=True)
    found = {FILTERED[head]: cell.text for head, cell in named if head in FILTERED}
    if "norm" not in found and (norm := re.split(r"\W", found.get("case", ""))[0]) in get_args(Norm):
        found["norm"] = norm  # which the name of a case begins with
    return {f"data-{name}": text for name, text in found.items()}
