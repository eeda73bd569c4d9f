"""How many samples of a backward waited for the kernel that ran beside it, and what a report says of that."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.results.contexts import WAITS
from harness.results.schema import RowRecord

# The note of one process on a row: harness/worker/training_step.py writes it where any sample waited.
NOTE = re.compile(re.escape(WAITS) + r": .* in (?P<waited>\d+) of \d+ samples")


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
    def note(self) -> str:
        """The counts in words, for the notes on a row."""
        counts = f"in {self.waited} of {self.samples} samples"
        if self.usual:
            return f"{WAITS}: until the one beside had ended, {counts}"
        return f"waited for other kernels {counts}, fewer than half: until the one beside had ended"


def waiting_in(rows: Iterable[RowRecord]) -> Waiting | None:
    """The waiting of one implementation on one case in all its processes; None where no sample waited."""
    rows = list(rows)
    waited = sum(int(told["waited"]) for row in rows for note in row.notes if (told := NOTE.fullmatch(note)))
    return Waiting(waited, sum(len(row.timing.samples_us) for row in rows if row.timing)) if waited else None


def is_waiting(note: str) -> bool:
    """Whether a note on a row counts samples that waited."""
    return NOTE.fullmatch(note) is not None
