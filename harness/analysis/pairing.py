"""Matches the samples of two results block by block, within one process; no other module matches samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np
from numpy.typing import NDArray

from harness.analysis.statistics import Interval, Ratio, across_processes, median_and_spread, rank_interval, speedup
from harness.records.reasons import Reason
from harness.records.schema import Timing

Timings = Mapping[int, Timing]  # of one result, by process
ABOUT_INTERVALS = (
    "95 % interval of the median: by ranks (sign test) over the blocks of one process, Student's t over several"
)


@dataclass(frozen=True)
class Paired:
    """Two results in one process: their samples in us over the blocks that both have, in order of the blocks."""

    process: int
    base_us: tuple[float, ...]
    other_us: tuple[float, ...]

    @property
    def speedup(self) -> Ratio:
        """The speedup of other over base; raises IncomparableError where a sample is not a positive number."""
        return speedup(self.base_us, self.other_us)

    @cached_property
    def logs(self) -> NDArray[np.float64]:
        """The log speedup of each block."""
        return np.log(np.divide(self.base_us, self.other_us))

    @cached_property
    def median_log(self) -> float:
        """The log of the speedup, without its interval."""
        return median(self.logs.tolist())

    @property
    def ratio_of_medians(self) -> float:
        """The median of base over the median of other."""
        return median_and_spread(self.base_us)[0] / median_and_spread(self.other_us)[0]


def paired(base: Timings, other: Timings) -> list[Paired]:
    """Both results in every process that timed the two in the same blocks, in order of process."""
    pairs = (_pair(process, base[process], other[process]) for process in sorted(base.keys() & other.keys()))
    return [pair for pair in pairs if pair is not None]


def speedups(pairs: Sequence[Paired]) -> list[Ratio]:
    """The speedup in each process; that of one process alone has its interval, as that of several is not made of it."""
    if len(pairs) == 1:
        return [pairs[0].speedup]
    return [Ratio(math.exp(pair.median_log), 0.0, math.inf, pair.logs.size) for pair in pairs]


def why_not_interleaved(base: Timings, other: Timings) -> Reason | None:
    """Why a process did not interleave the two, or that no process timed both; None where all interleaved them.

    Timings are interleaved where group and flush are the same.
    """
    both = sorted(base.keys() & other.keys())
    for process in both:
        one, two = base[process], other[process]
        if one.group != two.group:
            return _in(process, Reason("different_groups", {"groups": [one.group, two.group]}))
        if one.flush != two.flush:
            return _in(process, Reason("different_flushes", {"flushes": [one.flush, two.flush]}))
        if not set(one.blocks) & set(two.blocks):
            return _in(process, Reason("no_common_block"))
    return None if both else Reason("no_common_process")


def _in(process: int, reason: Reason) -> Reason:
    return Reason("process", {"numbers": [process]}, [reason])


def time_interval(timings: Sequence[Timing]) -> Interval:
    """The 95 % interval of the median time in us, from one timing for each process; 0..inf below six samples."""
    ratios: list[Ratio] = []
    for timing in timings:
        logs = np.log(timing.samples_us)
        low, high = rank_interval(logs)
        ratios.append(Ratio(math.exp(np.median(logs)), math.exp(low), math.exp(high), logs.size))
    ratio = across_processes(ratios)
    return ratio.low, ratio.high


def _pair(process: int, base: Timing, other: Timing) -> Paired | None:
    if (base.group, base.flush) != (other.group, other.flush):
        return None
    if base.blocks == other.blocks and base.blocks == sorted(base.blocks):  # of most pairs
        return Paired(process, tuple(base.samples_us), tuple(other.samples_us)) if base.blocks else None
    base_us = dict(zip(base.blocks, base.samples_us, strict=True))
    other_us = dict(zip(other.blocks, other.samples_us, strict=True))
    common = sorted(base_us.keys() & other_us.keys())
    if not common:
        return None
    return Paired(process, tuple(base_us[block] for block in common), tuple(other_us[block] for block in common))
