"""The geometric mean speedups of a comparison as a table."""

from __future__ import annotations

from reports import figures
from reports.data.comparison import Comparison
from reports.table import Cell, Heading, Table, table, words


def geomeans(comparison: Comparison) -> Table:
    """The geometric means with the cases they cover, and in how many cases each is fastest; a norm at a time.

    Where they cover different cases, those over the cases in which all rank stand beside them.
    """
    means = comparison.summary.geomeans
    uneven = any(mean.common_cases < mean.cases for mean in means)
    headings = [
        *words("impl", "norm"),
        f"geomean speedup vs {comparison.baseline}",
        Heading("smallest to largest", drop=2),
        Heading("cases", drop=1),
        *([Heading("on common cases", drop=5)] if uneven else []),
        Heading("fastest in", drop=4),
        Heading("tied in", drop=3),
    ]
    wins = {wins.impl: wins for wins in comparison.summary.wins}
    rows: list[list[str | Cell]] = []
    for mean in means:
        won = wins.get(mean.impl)
        alone = sum(key.startswith(mean.norm) for key in won.alone) if won else 0
        tied = sum(key.startswith(mean.norm) for key in won.tied) if won else 0
        rows.append(
            [
                mean.label,
                mean.norm,
                Cell(figures.plain_ratio(mean.value), mean.value),
                Cell(f"{figures.plain_ratio(mean.smallest)} to {figures.plain_ratio(mean.largest)}", mean.smallest),
                Cell(f"{mean.cases} of {mean.total}", mean.cases),
                *([Cell(f"{figures.plain_ratio(mean.common)} ({mean.common_cases})", mean.common)] if uneven else []),
                Cell(str(alone), alone),
                Cell(str(tied), tied),
            ]
        )
    return table(headings, rows)
