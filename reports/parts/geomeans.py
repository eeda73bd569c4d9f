"""The geometric mean speedups of a comparison as tables."""

from __future__ import annotations

from harness.analysis.comparison import Comparison
from harness.analysis.summary import Geomean, Wins
from harness.cases import Norm
from reports import figures
from reports.labels import NORMS, counted_label
from reports.parts.answers import Counts, counts
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
    rows: list[list[str | Cell]] = []
    for mean in means:
        won = wins.get(mean.impl)
        alone = sum(key.startswith(mean.norm) for key in won.alone) if won else 0
        tied = sum(key.startswith(mean.norm) for key in won.tied) if won else 0
        rows.append(
            [
                counted_label(mean),
                mean.norm,
                Cell(figures.plain_ratio(mean.value), mean.value),
                Cell(_range(mean), mean.smallest),
                Cell(f"{mean.cases} of {mean.total}", mean.cases),
                *([Cell(f"{figures.plain_ratio(mean.common)} ({mean.common_cases})", mean.common)] if uneven else []),
                Cell(str(alone), alone),
                Cell(str(tied), tied),
            ]
        )
    return table(headings, rows)


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
            *_verified(counts(comparison, impl)),
            *([_won(wins.get(impl))] if wins else []),
        ]
        for impl in impls
    ]
    heads = ["implementation", *(f"{NORMS[norm]} speedup" for norm in norms), "right", "same bits"]
    return table(left(*heads, *(["fastest in"] if wins else [])), rows)


def _verified(of: Counts) -> list[Cell]:
    """In how many of the cases that it ran on it was right, and in how many of these it gave the same bits."""
    return [Cell(f"{of.right} of {of.ran}", of.right), Cell(f"{of.same} of {of.right}", of.same)]


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
