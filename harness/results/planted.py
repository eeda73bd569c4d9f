"""What the self-test plants: known bytes more, which have to be read as what they are and told from nothing.

Nothing is what the A/A pair of the same self-test reads. The band that a single process must not claim less than is not
asked for: it is about what other processes would read of implementations, and here one process is asked what it reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.results.schema import SelfTestRecord
from harness.results.statistics import Ratio, aa_reading, across_processes, verdict

SHARES = {"planted +1%": 0.01, "planted +2%": 0.02}  # of the bytes that move, by the name of the check
LIMIT = 0.005
NOTHING = "A/A"  # the check in which nothing was planted


def told(planted: Sequence[Ratio], nothing: Sequence[Ratio]) -> bool:
    """Whether what was planted is told from what was not: a ratio (how much longer it takes) of each process."""
    return verdict(across_processes(planted), aa_reading(nothing)) == "faster"


def told_together(name: str, records: Sequence[SelfTestRecord]) -> bool:
    """Whether several processes together tell what one of them alone could not, as they make any other claim.

    Each must have kept the limits: an engine that is off is off, whatever the others read.
    """
    if name not in SHARES or len(records) < 2:
        return False
    planted, nothing = ([_kept(of, record) for record in records] for of in (name, NOTHING))
    return all(planted) and all(nothing) and told([*filter(None, planted)], [*filter(None, nothing)])


def _kept(name: str, record: SelfTestRecord) -> Ratio | None:
    """What a check read, without an interval, as that plays no part among several; None beyond its limit."""
    found = (check for check in record.checks if check.name == name)
    for value, limit, reading in ((check.value, check.limit, check.reading) for check in found):
        if value is not None and limit is not None and reading is not None and value <= limit:
            return Ratio(math.exp(reading), 0.0, math.inf, 0)
    return None
