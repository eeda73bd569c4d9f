"""The rule that ends the measurement of a case; it depends on numbers only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.statistics import rank_interval


@dataclass(frozen=True)
class StoppingRule:
    """Stop when every ratio is known to `half_width` (95 %, relative), or when a budget is reached.

    `min_blocks` are always taken; `max_blocks` counts voided blocks too, so that a case that voids all ends; `budget_s`
    is host time in seconds.
    """

    min_blocks: int
    max_blocks: int
    half_width: float
    budget_s: float

    def enough(self, samples_us: Mapping[str, Sequence[float]], attempted: int, spent_s: float) -> bool:
        """Whether to stop, from the samples so far, the blocks attempted and the seconds spent."""
        if attempted >= self.max_blocks:
            return True
        taken = min((len(samples) for samples in samples_us.values()), default=0)
        if taken < self.min_blocks:
            return spent_s >= self.budget_s and taken >= 3
        return spent_s >= self.budget_s or widest_ratio(samples_us) <= self.half_width


def widest_ratio(samples_us: Mapping[str, Sequence[float]]) -> float:
    """Relative 95 % half-width of the least certain median ratio between the first candidate and any other."""
    first, *others = samples_us.values()
    return max((ratio_half_width(first, other) for other in others), default=0.0)


def ratio_half_width(first_us: Sequence[float], other_us: Sequence[float]) -> float:
    """Relative 95 % half-width of the median of the ratio within blocks.

    By ranks, because a spread estimated from samples that take few values (a clock's ticks, two addresses) can be 0.
    """
    low, high = rank_interval([math.log(a / b) for a, b in zip(first_us, other_us, strict=True)])
    return (high - low) / 2
