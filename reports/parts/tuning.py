"""What `normbwd tune` found, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from harness.tune.winners import Best
from reports import figures

HEADS = ["case", "default us", "best us", "speedup [95 %]", "launch"]


def render(best: Sequence[Best]) -> str:
    """A line for each case, and under them in how many a launch is faster than the default."""
    table = tabulate([_line(each) for each in best], HEADS, "simple", disable_numparse=True, colalign=_ALIGNED)
    faster = sum(each.launch is not None for each in best)
    return f"{table}\n\nA faster launch in {faster} of {figures.count(len(best), 'case')}.\n"


_ALIGNED = ("left", "right", "right", "left", "left")


def _line(best: Best) -> list[str]:
    if best.launch is None:
        said = "the default" + (f" ({figures.one_line(best.why)})" if best.why else "")
        default = figures.microseconds(best.default_us)
        return [best.case.key, default, default, figures.NOTHING, said]
    return [
        best.case.key,
        figures.microseconds(best.default_us),
        figures.microseconds(best.best_us),
        figures.ratio_and_interval(best.speedup),
        best.launch.describe(),
    ]
