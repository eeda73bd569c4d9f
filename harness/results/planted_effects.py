"""The self-test's planted effects: known bytes more, which must be read at their size and told from nothing.

Nothing is what the A/A pair of the same self-test reads. PROCESS_BAND plays no part: it is about what another process
would read of two implementations, and here one process has to read one effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.results.schema import SelfTestRecord
from harness.results.statistics import Ratio, aa_reading, across_processes, verdict

SHARES = {"planted +1%": 0.01, "planted +2%": 0.02}  # of the bytes that move, by the name of the check
LIMIT = 0.005
NOTHING = "A/A"  # the check in which nothing was planted


def found(planted: Sequence[Ratio], nothing: Sequence[Ratio]) -> bool:
    """Whether a planted effect is told from nothing: both as ratios (how much longer it takes), one a process."""
    return verdict(across_processes(planted), aa_reading(nothing)) == "faster"


def found_together(name: str, records: Sequence[SelfTestRecord]) -> bool:
    """Whether several processes together find a planted effect that one of them alone did not.

    Each must have kept the limits: an engine that is off in one process is off, whatever the others read.
    """
    if name not in SHARES or len(records) < 2:
        return False
    planted, nothing = ([_within_limit(check, record) for record in records] for check in (name, NOTHING))
    return all(planted) and all(nothing) and found([*filter(None, planted)], [*filter(None, nothing)])


def _within_limit(name: str, record: SelfTestRecord) -> Ratio | None:
    """The reading of a check; None beyond its limit. It has no interval, which plays no part among several."""
    for check in record.checks:
        if check.name == name and check.value is not None and check.limit is not None and check.reading is not None:
            return Ratio(math.exp(check.reading), 0.0, math.inf, 0) if check.value <= check.limit else None
    return None
