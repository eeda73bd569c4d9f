"""Matches the samples of two results block by block, within one process; no other module matches samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np
from numpy.typing import NDArray

from harness.analysis.statistics import Interval, Ratio, across_processes, rank_interval, speedup
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
    base_us: Sequence[float]
    other_us: Sequence[float]

    @property
    def speedup(self) -> Ratio:
        """The speedup of other over base; raises IncomparableError where a sample is not a positive number."""
        return speedup(self.base_us, self.other_us)

    @property
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
        return median(self.base_us) / median(self.other_us)


def paired(base: Timings, other: Timings) -> list[Paired]:
    """Both results in every process that timed the two in the same blocks, in order of process."""
    both = [(process, base[process], other[process]) for process in sorted(base.keys() & other.keys())]
    return [_pair(process, one, two) for process, one, two in both if _why_apart(one, two) is None]


def why_not_interleaved(base: Timings, other: Timings) -> Reason | None:
    """Why a process did not interleave the two, or that no process timed both; None where all interleaved them."""
    both = sorted(base.keys() & other.keys())
    reasons = ((process, _why_apart(base[process], other[process])) for process in both)
    first = next((Reason("process", {"numbers": [process]}, [reason]) for process, reason in reasons if reason), None)
    return first if both else Reason("no_common_process")


def speedups(pairs: Sequence[Paired]) -> list[Ratio]:
    """The speedup in each process; that of one process alone has its interval, as that of several is not made of it."""
    if len(pairs) == 1:
        return [pairs[0].speedup]
    return [Ratio(math.exp(pair.median_log), 0.0, math.inf, len(pair.base_us)) for pair in pairs]


def time_interval(timings: Sequence[Timing]) -> Interval:
    """The 95 % interval of the median time in us, from one timing for each process; 0..inf below six samples."""
    ratios: list[Ratio] = []
    for timing in timings:
        logs = np.log(timing.samples_us)
        low, high = rank_interval(logs)
        ratios.append(Ratio(math.exp(np.median(logs)), math.exp(low), math.exp(high), logs.size))
    ratio = across_processes(ratios)
    return ratio.low, ratio.high


def _why_apart(one: Timing, two: Timing) -> Reason | None:
    """Why two timings of a process were not interleaved: they are where group and flush are the same."""
    if one.group != two.group:
        return Reason("different_groups", {"groups": [one.group, two.group]})
    if one.flush != two.flush:
        return Reason("different_flushes", {"flushes": [one.flush, two.flush]})
    apart = one.blocks != two.blocks and set(one.blocks).isdisjoint(two.blocks)
    return Reason("no_common_block") if apart else None


def _pair(process: int, base: Timing, other: Timing) -> Paired:
    if base.blocks == other.blocks == sorted(base.blocks):  # of nearly all
        return Paired(process, base.samples_us, other.samples_us)
    base_us, other_us = (dict(zip(timing.blocks, timing.samples_us, strict=True)) for timing in (base, other))
    common = sorted(base_us.keys() & other_us.keys())
    return Paired(process, [base_us[block] for block in common], [other_us[block] for block in common])
