"""What becomes of one limit on one case, and the exit code of all of them together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.cases import NormCase
from harness.gate.limits import Claim, Regression
from harness.results.statistics import Ratio

Outcome = Literal["PASS", "REGRESSED", "INCONCLUSIVE", "ERROR"]
EXIT_CODES: dict[Outcome, int] = {"PASS": 0, "REGRESSED": 1, "INCONCLUSIVE": 3, "ERROR": 2}
GRAVEST_FIRST: tuple[Outcome, ...] = ("ERROR", "REGRESSED", "INCONCLUSIVE", "PASS")


@dataclass(frozen=True)
class Loss:
    """A test that head is slower than base by more than `delta` (a log ratio), over so many cells.

    `low` and `high` are the ends of its 90 % interval as a speedup: each is the 95 % bound of a one-sided test.
    `p` is for a loss beyond delta, `adjusted` the same after the tests of all cells were looked at together.
    """

    speedup: float
    low: float
    high: float
    delta: float
    p: float
    adjusted: float
    cells: int = 1

    def __str__(self) -> str:
        interval = f"[{self.low:.3f}, {self.high:.3f}]" if math.isfinite(self.high) else "[no interval]"
        return f"{self.speedup:.3f} {interval}"


@dataclass(frozen=True)
class Verdict:
    """What became of one limit on one case, with the figures behind it and the reason in words.

    `case` is None for a verdict on the file, or on the geometric mean where there is a `loss`.
    """

    claim: Claim | Regression
    case: NormCase | None
    outcome: Outcome
    reason: str
    ratio: Ratio | None = None
    loss: Loss | None = None


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """The code of the gravest verdict; nothing judged is an error."""
    outcomes = {verdict.outcome for verdict in verdicts}
    gravest: list[Outcome] = [outcome for outcome in GRAVEST_FIRST if outcome in outcomes]
    return EXIT_CODES[gravest[0] if gravest else "ERROR"]
