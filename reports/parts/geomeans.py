"""The geometric mean speedups of a comparison as a table."""

from __future__ import annotations

from reports import figures
from reports.data.comparison import Comparison
from reports.parts.sections import Cell, Table, table


def geomeans(comparison: Comparison) -> Table:
    """The geometric means with their coverage, and over the common cases where coverage differs; a norm at a time."""
    means = comparison.summary.geomeans
    norms = {mean.norm: mean for mean in means}
    uneven = any(mean.common_cases < mean.cases for mean in means)
    heads = ["impl", "norm", f"geomean speedup vs {comparison.baseline}", "smallest to largest", "cases"]
    if uneven:
        common = ", ".join(f"{norm} {mean.common_cases}" for norm, mean in norms.items())
        heads.append(f"on the cases that all rank in ({common})")
    rows = [
        [
            mean.label,
            mean.norm,
            Cell(figures.plain_ratio(mean.value), mean.value),
            Cell(f"{figures.plain_ratio(mean.smallest)} to {figures.plain_ratio(mean.largest)}", mean.smallest),
            Cell(f"{mean.cases} of {mean.total}", mean.cases),
            *([Cell(figures.plain_ratio(mean.common), mean.common)] if uneven else []),
        ]
        for mean in means
    ]
    return table(heads, rows)
