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

import numpy as np
from numpy.typing import NDArray

from harness.analysis.case_comparison import Entry
from harness.analysis.comparison import Comparison
from harness.analysis.statistics import benjamini_hochberg
from harness.cases import NormCase
from harness.records.run_records import RunRecord

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
        adjusted = benjamini_hochberg([p for _, _, p in arcs])
        for (number, begin, end), (first, last, _), p in zip(tried, arcs, adjusted, strict=True):
            if p <= ALPHA:
                edges = sorted({begin, begin + first, begin + last, end})
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


def _arc(values: Sequence[float]) -> tuple[int, int, float]:
    """The begin and end of the runs that differ most from the others, and the p-value of there being one level."""
    if len(values) < 2 * SHORTEST:
        return 0, 0, 1.0
    logs = np.log(values)
    off = logs - np.median(logs)
    most = CLIP * np.median(np.abs(off))
    clipped = np.clip(off, -most, most)
    contrasts, (begin, end) = _contrasts(clipped[None, :])
    p = 1.0
    for orders in (ORDERS // 10, ORDERS):
        by_chance, _ = _contrasts(clipped[_orders(len(values))[:orders]])
        p = (1 + np.count_nonzero(by_chance >= contrasts[0] * (1 - 1e-9))) / (1 + orders)
        if p > 2 * ALPHA:  # adjusted it is no smaller
            break
    return begin, end, p


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
    environments = [_environment(comparison.run) for comparison in runs]
    breaks: dict[int, dict[str, tuple[str, str]]] = {}
    for run, (was, now) in enumerate(pairwise(environments), 1):
        pairs = {name: (was.get(name, "none"), now.get(name, "none")) for name in (*was, *now)}
        if changed := {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}:
            breaks[run] = changed
    history = History(runs, breaks, _all_series(runs))
    stretches = [(number, places) for number, each in enumerate(history.series) for places in history.stretches(each)]
    values = [[history.series[number].values[place] or 0.0 for place in places] for number, places in stretches]
    changes: list[list[Change]] = [[] for _ in history.series]
    for (number, places), of_stretch, points in zip(stretches, values, change_points(values), strict=True):
        changes[number] += [Change(places[at], by) for at, by in zip(points, steps(of_stretch, points), strict=True)]
    series = (replace(each, changes=tuple(found)) for each, found in zip(history.series, changes, strict=True))
    return replace(history, series=tuple(series))


def _all_series(runs: Sequence[Comparison]) -> tuple[Series, ...]:
    """The series that at least two runs have, and one ranks."""
    cases = [{case.case: case for case in run.cases} for run in runs]
    names = dict.fromkeys((case.case, entry.impl) for run in runs for case in run.cases for entry in case.entries)
    made: list[Series] = []
    for case, impl in names:
        entries = tuple(of_run[case].entry(impl) if case in of_run else None for of_run in cases)
        ranked = [entry if entry and entry.standing == "ranked" else None for entry in entries]
        over_add = all(entry is None or entry.percent_of_add for entry in ranked)
        values = (entry and (100 / (entry.percent_of_add or 1.0) if over_add else entry.median_us) for entry in ranked)
        made.append(Series(case, impl, entries, tuple(values)))
    return tuple(each for each in made if each.ranked and sum(entry is not None for entry in each.entries) > 1)


def _environment(run: RunRecord) -> dict[str, str]:
    """What decides whether two runs of a device may be one series: not what implementations bring along themselves."""
    own = {name for impl in run.implementations for name in impl.libraries}
    shared = {name: version for name, version in run.libraries.items() if name not in own}
    driver = run.device.driver or "unknown"
    return {"engine": str(run.engine_version), "flush": run.settings.flush, "driver": driver, **shared}
