"""How many samples of a backward waited for the kernel that ran beside it, and whether most did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.records.reasons import Reason
from harness.records.schema import Timing


@dataclass(frozen=True)
class Waiting:
    """The samples of all processes, and how many of them ended only after the kernel beside had ended."""

    waited: int
    samples: int

    @property
    def usual(self) -> bool:
        """Whether at least half of the samples waited, so that a typical time is that of the kernel beside."""
        return 2 * self.waited >= self.samples

    @property
    def note(self) -> Reason:
        """The counts as a note on a row."""
        fields = {"waited": self.waited, "samples": self.samples}
        return Reason("usually_waits" if self.usual else "waits_sometimes", fields)


def waiting_in(timings: Sequence[Timing]) -> Waiting | None:
    """The waiting of one implementation on one case in all its processes; None where no sample waited."""
    waited = sum(timing.waited for timing in timings)
    return Waiting(waited, sum(len(timing.samples_us) for timing in timings)) if waited else None
