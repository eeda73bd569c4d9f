"""The planted effects of a self-test: 1 and 2 % more bytes, which must be measured as such and told from no effect.

No effect is what the A/A pair of the same self-test reads. PROCESS_BAND is not used: it covers the scatter between
processes, and here one process has to detect one effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.analysis.statistics import Ratio, aa_reading, across_processes, verdict
from harness.records.schema import SelfTestRecord

SHARES = {"planted +1%": 0.01, "planted +2%": 0.02}  # of the bytes that move, by the name of the check
LIMIT = 0.005
NOTHING = "A/A"  # the check in which nothing was planted


def detected(planted: Sequence[Ratio], nothing: Sequence[Ratio]) -> bool:
    """Whether a planted effect is told from the A/A pair; both as ratios of times, one for each process."""
    return verdict(across_processes(planted), aa_reading(nothing)) == "faster"


def detected_together(name: str, records: Sequence[SelfTestRecord]) -> bool:
    """Whether several processes together detect a planted effect that one of them alone did not.

    Each process must have kept the limits, because an engine that is off in one process is off.
    """
    if name not in SHARES or len(records) < 2:
        return False
    planted, nothing = ([_within_limit(check, record) for record in records] for check in (name, NOTHING))
    return all(planted) and all(nothing) and detected([*filter(None, planted)], [*filter(None, nothing)])


def _within_limit(name: str, record: SelfTestRecord) -> Ratio | None:
    """The reading of a check as a ratio, whose interval is not used; None if the check broke its limit."""
    for check in record.checks:
        if check.name == name and check.value is not None and check.limit is not None and check.reading is not None:
            return Ratio(math.exp(check.reading), 0.0, math.inf, 0) if check.value <= check.limit else None
    return None
