"""The kernels of one backward on a time line; a moment that several kernels share counts once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from harness.analysis.statistics import spans_agree
from harness.records.schema import Budget, Kernel, KernelTotals


class Segment(NamedTuple):
    """A stretch of time, in microseconds from the first kernel's begin; `kernel` is None in a gap."""

    start_us: float
    length_us: float
    kernel: int | None


def segments(kernels: Sequence[Kernel]) -> list[Segment]:
    """The time line with its gaps; a kernel gets the time that it adds to the kernels that began before it.

    Where not every begin is known, the kernels stand end to end in launch order.
    """
    begins_us = [kernel.start_us for kernel in kernels if kernel.start_us is not None]
    if len(begins_us) < len(kernels):
        begins_us = list(accumulate((kernel.median_us for kernel in kernels), initial=0.0))
    line: list[Segment] = []
    reached = 0.0
    for ordinal in sorted(range(len(kernels)), key=begins_us.__getitem__):
        begin, end = begins_us[ordinal], begins_us[ordinal] + kernels[ordinal].median_us
        if begin > reached:
            line.append(Segment(reached, begin - reached, None))
        begin = max(begin, reached)
        if end > begin:
            line.append(Segment(begin, end - begin, ordinal))
            reached = end
    return line


def disagreement_us(totals: KernelTotals | None, budget: Budget | None) -> float | None:
    """What events read beyond the profiler's lead and span and their own share; None where either is unknown."""
    if totals is None or budget is None or budget.event_offset_us is None:
        return None
    return totals.event_us - budget.event_offset_us - totals.lead_us - totals.span_us


def agrees(totals: KernelTotals | None, budget: Budget | None) -> bool | None:
    """Whether events and the profiler saw the same work; None where that cannot be told."""
    if totals is None or budget is None or budget.event_offset_us is None:
        return None
    return spans_agree(totals.event_us, totals.lead_us + totals.span_us, budget.event_offset_us)
