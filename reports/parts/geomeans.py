"""The geometric mean speedups of a comparison as tables."""

from __future__ import annotations

from harness.analysis.comparison import Comparison
from harness.analysis.summary import Geomean
from reports import figures
from reports.labels import counted_label, first_word
from reports.table import Cell, Heading, Table, left, table


def geomeans(comparison: Comparison) -> Table:
    """The geometric means with the cases they cover, and in how many cases each comes first; a norm at a time.

    Where they cover different cases, those over the cases in which all rank stand beside them.
    """
    means = comparison.summary.geomeans
    uneven = any(0 < mean.common_cases < mean.cases for mean in means)
    headings = [
        *left("impl", "norm"),
        f"geomean speedup vs {comparison.baseline}",
        Heading("smallest to largest", drop=2),
        Heading("cases", drop=1),
        *([Heading("on common cases", drop=5)] if uneven else []),
        Heading(f"{first_word(comparison)} in", drop=4),
        Heading("tied in", drop=3),
    ]
    wins = {wins.impl: wins for wins in comparison.summary.wins}

    def row(mean: Geomean) -> list[str | Cell]:
        won = wins.get(mean.impl)
        common = Cell(f"{figures.plain_ratio(mean.common)} ({mean.common_cases})", mean.common)
        firsts = [
            sum(key.startswith(mean.norm) for key in keys) for keys in ((won.alone, won.tied) if won else ((), ()))
        ]
        return [
            counted_label(mean),
            mean.norm,
            Cell(figures.plain_ratio(mean.value), mean.value),
            Cell(f"{figures.plain_ratio(mean.smallest)} to {figures.plain_ratio(mean.largest)}", mean.smallest),
            Cell(f"{mean.cases} of {mean.total}", mean.cases),
            *([common] if uneven else []),
            *(Cell(str(number), number) for number in firsts),
        ]

    return table(headings, [row(mean) for mean in means])
