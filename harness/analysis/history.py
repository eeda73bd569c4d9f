"""The runs of a device in the order of time: a series for each case and implementation, and where its level changed.

Changes are found by circular binary segmentation (Olshen and Venkatraman, 2004): some neighbours whose mean differs
most from that of the rest, with a p-value from random orders of the same values; then each part is searched in turn.
The p-values of all series are adjusted by Benjamini and Hochberg. Values far off the median are clipped: one run on a
disturbed machine must not hide a change, nor be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.analysis.case_comparison import Entry
from harness.analysis.comparison import Comparison
from harness.analysis.statistics import benjamini_hochberg
from harness.cases import NormCase

ALPHA = 0.05  # of the adjusted p-value of a change
SMALLEST = 0.01  # a change of less is none: fresh runs of the same code differ by up to that
ORDERS = 4_999  # random orders, for a p-value
SHORTEST = 3  # runs at a level
CLIP = 6.0  # median absolute deviations: four standard deviations of normal noise


@dataclass(frozen=True)
class Change:
    """The place of the first run at a new level, and that level over the one before, less 1; above 0 is slower."""

    run: int
    relative: float


@dataclass(frozen=True)
class Series:
    """One implementation on one case: its entry in each run, and its time over that of the same-traffic add there.

    Without an add in every run that ranks it, the values are times in us; None where a run does not rank it.
    """

    case: NormCase
    impl: str
    entries: tuple[Entry | None, ...]
    values: tuple[float | None, ...]
    changes: tuple[Change, ...] = ()

    @property
    def ranked(self) -> list[int]:
        """The places of the runs that rank it."""
        return [run for run, value in enumerate(self.values) if value is not None]


@dataclass(frozen=True)
class History:
    """The runs of one device, oldest first; `breaks` has what differs from the run before, so that it is no series."""

    runs: tuple[Comparison, ...]
    breaks: dict[int, dict[str, tuple[str, str]]]
    series: tuple[Series, ...]

    def stretches(self, series: Series) -> list[list[int]]:
        """The places of the runs that rank it, apart where a break lies between them."""
        edges = [0, *sorted(self.breaks), len(self.runs)]
        parts = [[run for run in series.ranked if begin <= run < end] for begin, end in pairwise(edges)]
        return [part for part in parts if part]


def histories(comparisons: Sequence[Comparison]) -> list[History]:
    """The history of each device, with the changes of its series."""
    devices = dict.fromkeys(comparison.run.device.name for comparison in comparisons)
    return [_history([each for each in comparisons if each.run.device.name == name]) for name in devices]


def change_points(stretches: Sequence[Sequence[float]]) -> list[list[int]]:
    """For each stretch of values above 0, the places at which a new level begins."""
    found: list[set[int]] = [set() for _ in stretches]
    parts = [(number, 0, len(values)) for number, values in enumerate(stretches)]
    while parts:
        tried, parts = parts, []
        arcs = [_arc(stretches[number][begin:end]) for number, begin, end in tried]
        for (number, begin, end), arc, p in zip(tried, arcs, benjamini_hochberg([arc.p for arc in arcs]), strict=True):
            if p <= ALPHA:
                edges = sorted({begin, begin + arc.begin, begin + arc.end, end})
                found[number].update(edges[1:-1])
                parts += [(number, *edge) for edge in pairwise(edges)]
    return [_large(values, sorted(places)) for values, places in zip(stretches, found, strict=True)]


def steps(values: Sequence[float], places: Sequence[int]) -> list[float]:
    """The level that begins at each place over the one before it, less 1; a level is the median between two places."""
    levels = [median(values[begin:end]) for begin, end in pairwise([0, *places, len(values)])]
    return [after / before - 1 for before, after in pairwise(levels)]


def _large(values: Sequence[float], places: list[int]) -> list[int]:
    """The places without those of too small a step, the smallest first."""
    while places:
        sizes = [abs(step) for step in steps(values, places)]
        if min(sizes) >= SMALLEST:
            break
        places = [place for number, place in enumerate(places) if number != sizes.index(min(sizes))]
    return places


class _Arc(NamedTuple):
    """The runs of a stretch that differ most from its others, and the p-value of there being one level."""

    begin: int = 0
    end: int = 0
    p: float = 1.0


def _arc(values: Sequence[float]) -> _Arc:
    if len(values) < 2 * SHORTEST:
        return _Arc()
    logs = np.log(values)
    off = logs - np.median(logs)
    most = CLIP * np.median(np.abs(off))
    clipped = np.clip(off, -most, most)
    contrasts, arcs = _contrasts(clipped[None, :])
    by_chance, _ = _contrasts(clipped[_orders(len(values))])
    as_large = np.count_nonzero(by_chance >= contrasts[0] * (1 - 1e-9))
    return _Arc(*arcs, (1 + as_large) / (1 + ORDERS))


@cache
def _orders(count: int) -> NDArray[np.intp]:
    return np.random.default_rng(count).permuted(np.tile(np.arange(count), (ORDERS, 1)), axis=1)


def _contrasts(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], tuple[int, int]]:
    """For each row, how far the mean of an arc is from that of the rest, in units of chance, at most; and the first's.

    An arc is some neighbours; it and what is left on either side of it are empty or SHORTEST or more.
    """
    count = values.shape[1]
    places = np.array([0, *range(SHORTEST, count - SHORTEST + 1), count])
    sums = np.pad(np.cumsum(values - values.mean(axis=1, keepdims=True), axis=1), ((0, 0), (1, 0)))[:, places]
    largest, arc = np.zeros(len(values)), (0, 0)
    for number, begin in enumerate(places):
        later = np.flatnonzero((places - begin >= SHORTEST) & (places - begin < count))
        if not later.size:
            break
        sizes = places[later] - begin
        contrasts = np.abs(sums[:, later] - sums[:, number, None]) / np.sqrt(sizes * (count - sizes))
        if contrasts[0].max() > largest[0]:
            arc = int(begin), int(places[later[contrasts[0].argmax()]])
        largest = np.maximum(largest, contrasts.max(axis=1))
    return largest, arc


def _history(comparisons: Sequence[Comparison]) -> History:
    runs = tuple(sorted(comparisons, key=lambda comparison: comparison.run.started_at))
    differing = [_differing(_environment(one), _environment(other)) for one, other in pairwise(runs)]
    history = History(runs, {run: names for run, names in enumerate(differing, 1) if names}, _all_series(runs))
    stretches = [(series, places) for series in history.series for places in history.stretches(series)]
    values = [[series.values[place] or 0.0 for place in places] for series, places in stretches]
    changes: dict[tuple[NormCase, str], list[Change]] = {}
    for (series, places), of_stretch, points in zip(stretches, values, change_points(values), strict=True):
        sizes = zip(points, steps(of_stretch, points), strict=True)
        changes.setdefault((series.case, series.impl), []).extend(Change(places[at], size) for at, size in sizes)
    series = (replace(each, changes=tuple(changes.get((each.case, each.impl), ()))) for each in history.series)
    return replace(history, series=tuple(series))


def _all_series(runs: Sequence[Comparison]) -> tuple[Series, ...]:
    cases = [{case.case: case for case in run.cases} for run in runs]
    names = dict.fromkeys((case.case, entry.impl) for run in runs for case in run.cases for entry in case.entries)
    made: list[Series] = []
    for case, impl in names:
        of_case = [of_run.get(case) for of_run in cases]
        entries = tuple(each.entry(impl) if each else None for each in of_case)
        ranked = [entry if entry and entry.standing == "ranked" else None for entry in entries]
        over_add = all(entry is None or entry.percent_of_add for entry in ranked)
        values = (entry and (100 / (entry.percent_of_add or 1.0) if over_add else entry.median_us) for entry in ranked)
        made.append(Series(case, impl, entries, tuple(value or None for value in values)))
    return tuple(each for each in made if each.ranked)


def _environment(comparison: Comparison) -> dict[str, str]:
    """What decides whether two runs of a device may be one series: not what implementations bring along themselves."""
    run = comparison.run
    own = {name for impl in run.implementations for name in impl.libraries}
    shared = {name: version for name, version in run.libraries.items() if name not in own}
    settings = {
        "engine": str(run.engine_version),
        "flush": run.settings.flush,
        "driver": run.device.driver or "unknown",
    }
    return settings | shared


def _differing(one: dict[str, str], other: dict[str, str]) -> dict[str, tuple[str, str]]:
    pairs = {name: (one.get(name, "none"), other.get(name, "none")) for name in (*one, *other)}
    return {name: (was, now) for name, (was, now) in pairs.items() if was != now}
