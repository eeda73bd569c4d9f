"""How sure a median is: by ranks over the blocks of one process, by Student's t over several processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from harness.results.schema import Timing
from harness.results.statistics import Ratio, across_processes, sign_test_interval

ABOUT = "95 % interval of the median: by ranks (sign test) over the blocks of one process, Student's t over several"

Interval = tuple[float, float]


def of_time(timings: Sequence[Timing]) -> Interval:
    """The interval of the median time in us; 0..inf from fewer than six samples."""
    return _over_processes([_of_process(np.log(timing.samples_us)) for timing in timings])


def of_quotient(base: Sequence[Timing], other: Sequence[Timing]) -> Interval | None:
    """The interval of base's median over other's; None where no process has both in a block.

    Within one process by ranks of the quotients block by block, in which drift cancels.
    """
    of_base = {(timing.group, timing.flush): timing for timing in base}
    pairs = [(of_base[key], each) for each in other if (key := (each.group, each.flush)) in of_base]
    found = [
        replace(_of_process(logs), value=median(first.samples_us) / median(second.samples_us))
        for first, second in pairs
        if (logs := _matched(first, second)).size
    ]
    return _over_processes(found) if found else None


def _matched(base: Timing, other: Timing) -> NDArray[np.float64]:
    of_base = dict(zip(base.blocks, base.samples_us, strict=True))
    common = [
        (of_base[block], us) for block, us in zip(other.blocks, other.samples_us, strict=True) if block in of_base
    ]
    return np.array([math.log(first / second) for first, second in common])


def _over_processes(each: Sequence[Ratio]) -> Interval:
    joined = across_processes(each)
    return joined.low, joined.high


def _of_process(logs: NDArray[np.float64]) -> Ratio:
    low, high = sign_test_interval(logs)
    return Ratio(math.exp(np.median(logs)), math.exp(low), math.exp(high), logs.size)
