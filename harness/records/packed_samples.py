"""Samples as published files hold them: whole units of the timer, as distances from their median.

A GPU's timer counts in units of its own, such as 32 ns, and most samples are a few of these from the median: such small
numbers take a quarter less room in a compressed file than times in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from harness.records.limits import Whole

FINEST_NS = 10  # a timer that counts in smaller units, such as a host's, is rounded to this


class PackedSamples(BaseModel):
    """Samples of (`median` + `from_median[i]`) * `unit_ns` nanoseconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    unit_ns: Annotated[int, Field(gt=0, le=1_000_000_000)]
    median: Whole
    from_median: list[Whole]

    @classmethod
    def of(cls, samples_us: Sequence[float]) -> PackedSamples:
        """These samples, which are finite numbers, in the largest unit that they are multiples of."""
        unit_ns = max(math.gcd(*(round(us * 1000) for us in samples_us)), FINEST_NS)
        units = [round(us * 1000 / unit_ns) for us in samples_us]
        median = sorted(units)[len(units) // 2] if units else 0
        return cls(unit_ns=unit_ns, median=median, from_median=[count - median for count in units])

    def in_us(self) -> list[float]:
        """The samples in microseconds."""
        return [(self.median + count) * self.unit_ns / 1000 for count in self.from_median]
