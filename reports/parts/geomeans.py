"""The geometric mean speedups of a comparison as tables."""

from __future__ import annotations

from harness.analysis.comparison import Comparison
from harness.analysis.summary import Geomean, Wins
from harness.cases import Norm
from reports import figures
from reports.labels import NORMS, counted_label
from reports.parts.answers import counts
from reports.table import Cell, Heading, Table, left, table


def geomeans(comparison: Comparison) -> Table:
    """The geometric means with the cases they cover, and in how many cases each is fastest; a norm at a time.

    Where they cover different cases, those over the cases in which all rank stand beside them.
    """
    means = comparison.summary.geomeans
    uneven = any(mean.common_cases < mean.cases for mean in means)
    headings = [
        *left("impl", "norm"),
        f"geomean speedup vs {comparison.baseline}",
        Heading("smallest to largest", drop=2),
        Heading("cases", drop=1),
        *([Heading("on common cases", drop=5)] if uneven else []),
        Heading("fastest in", drop=4),
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
            Cell(_range(mean), mean.smallest),
            Cell(f"{mean.cases} of {mean.total}", mean.cases),
            *([common] if uneven else []),
            *(Cell(str(number), number) for number in firsts),
        ]

    return table(headings, [row(mean) for mean in means])


def norms_side_by_side(comparison: Comparison) -> Table:
    """A row an implementation, best first: its mean speedups, how often it was right with the same bits, and fastest.

    Cases that it refused are not counted as wrong, and bits only where it was right.
    """
    means = {(mean.impl, mean.norm): mean for mean in comparison.summary.geomeans}
    norms: list[Norm] = [norm for norm in NORMS if any(mean.norm == norm for mean in means.values())]
    impls = list(dict.fromkeys(impl for impl, _ in sorted(means, key=lambda key: -means[key].value)))
    wins = {wins.impl: wins for wins in comparison.summary.wins}
    rows = [
        [
            impl,
            *(_mean(means.get((impl, norm))) for norm in norms),
            *(Cell(f"{part} of {whole}", part) for part, whole in counts(comparison, impl)),
            *([_won(wins.get(impl))] if wins else []),
        ]
        for impl in impls
    ]
    heads = ["implementation", *(f"{NORMS[norm]} speedup" for norm in norms), "right", "same bits"]
    return table(left(*heads, *(["fastest in"] if wins else [])), rows)


def _mean(mean: Geomean | None) -> Cell:
    """A mean with its range, and over how many cases it is where it lacks some."""
    if mean is None:
        return Cell(figures.NOTHING)
    text = f"{figures.plain_ratio(mean.value)} ({_range(mean)})"
    return Cell(text + (f" in {mean.cases} of {mean.total}" if mean.cases < mean.total else ""), mean.value)


def _range(mean: Geomean) -> str:
    return f"{figures.plain_ratio(mean.smallest)} to {figures.plain_ratio(mean.largest)}"


def _won(wins: Wins | None) -> Cell:
    """The cases that are won alone, and those in which it ties for fastest."""
    alone, tied = (len(wins.alone), len(wins.tied)) if wins else (0, 0)
    return Cell(f"{alone}, tied in {tied}" if tied else str(alone), alone)
