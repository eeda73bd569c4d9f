"""Compares a run on two GPUs of a host with the same run on one: its time, and its speedups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.results.published.planned import Plan
from reports import figures
from reports.data.comparison import Comparison
from reports.markdown_writer import paragraphs, table
from reports.parts.conditions import time_spent
from reports.published.sources import Source, by_device
from reports.table import words

ON_TWO, ON_ONE = "two-gpus", "two-gpus-one"  # their names in the plan


@dataclass(frozen=True)
class Shift:
    """The log of the factor between a speedup on two GPUs and the same on one, and the A/A band of that case."""

    case: str
    impl: str
    log_factor: float
    band: float

    @property
    def inside(self) -> bool:
        """Whether it is within the band."""
        return abs(self.log_factor) <= self.band

    def in_words(self) -> str:
        """The shift in words."""
        return f"{self.impl} at {self.case} by {figures.signed(100 * math.expm1(self.log_factor))} %"


def section(sources: Sequence[Source], _plan: Plan) -> str:
    """For each device that has both runs: their times, and by how much their speedups differ."""
    parts: list[str] = []
    for files in by_device(sources).values():
        named = {source.name: source for source in files}
        if ON_TWO in named and ON_ONE in named:
            two, one = named[ON_TWO], named[ON_ONE]
            parts += [f"On {two.device_name}: {two.about}; {two.mark}."]
            parts += [_times(one.comparison, two.comparison), _shifts_in_words(shifts(one.comparison, two.comparison))]
    return paragraphs(parts)


def shifts(one: Comparison, two: Comparison) -> list[Shift]:
    """The shift of every speedup that both runs have, in cases where the run on one GPU has an A/A band."""
    of_two = {
        (case.case, entry.impl): entry.speedup.value for case in two.cases for entry in case.entries if entry.speedup
    }
    return [
        Shift(case.case.key, entry.impl, math.log(of_two[case.case, entry.impl] / entry.speedup.value), case.aa_band)
        for case in one.cases
        for entry in case.entries
        if case.aa_band is not None and entry.speedup and (case.case, entry.impl) in of_two
    ]


def _times(one: Comparison, two: Comparison) -> str:
    rows = [[name, time_spent(comparison.end)] for name, comparison in (("one GPU", one), ("two GPUs", two))]
    text = table(words("run", "time, and GPU time by stage"), rows)
    if one.end and two.end and one.end.wall_s:
        return f"{text}\n\nWith two the run takes {two.end.wall_s / one.end.wall_s:.2f} of the time with one."
    return text


def _shifts_in_words(shifts: Sequence[Shift]) -> str:
    inside = sum(shift.inside for shift in shifts)
    text = f"Of {figures.count(len(shifts), 'speedup')}, {inside} are within the A/A band of the run on one GPU"
    outside = sorted((shift for shift in shifts if not shift.inside), key=lambda shift: -abs(shift.log_factor))
    return f"{text}; furthest off: {', '.join(shift.in_words() for shift in outside[:3])}." if outside else f"{text}."
