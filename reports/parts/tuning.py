"""What `normbwd tune` measured, as a table."""

from __future__ import annotations

from tabulate import tabulate

from harness.analysis.statistics import Ratio
from harness.cases.tuned import TunedCase, TunedFile
from reports import figures

HEADS = ["implementation", "case", "default us", "best us", "speedup [95 %]", "configuration"]
_ALIGNED = ("left", "left", "right", "right", "left", "left")


def render(file: TunedFile) -> str:
    """A line for each case, and below the number of cases in which a configuration is faster than the default."""
    table = tabulate(map(_line, file.cases), HEADS, "simple", disable_numparse=True, colalign=_ALIGNED)
    faster = sum(case.config_name is not None for case in file.cases)
    return f"{table}\n\nA faster configuration in {faster} of {figures.count(len(file.cases), 'case')}.\n"


def _line(case: TunedCase) -> list[str]:
    named = [case.impl, case.case.key, figures.microseconds(case.default_us)]
    if case.config_name is None or case.speedup is None:
        stays = "the default" + (f" ({figures.one_line(case.why)})" if case.why else "")
        return [*named, figures.microseconds(case.default_us), figures.NOTHING, stays]
    speedup = Ratio(case.speedup.value, case.speedup.low, case.speedup.high, 0, case.speedup.processes)
    return [*named, figures.microseconds(case.best_us), figures.ratio_and_interval(speedup), case.config_name]
