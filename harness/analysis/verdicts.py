"""The verdicts of a gate, on each limit and case, as plain data; and their common exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.analysis.statistics import Ratio
from harness.cases import NormCase
from harness.records.reasons import Reason

Outcome = Literal["PASS", "REGRESSED", "INCONCLUSIVE", "ERROR"]
EXIT_CODES: dict[Outcome, int] = {"PASS": 0, "REGRESSED": 1, "INCONCLUSIVE": 3, "ERROR": 2}
GRAVEST_OUTCOME_FIRST: tuple[Outcome, ...] = ("ERROR", "REGRESSED", "INCONCLUSIVE", "PASS")


@dataclass(frozen=True)
class Subject:
    """The limit that a verdict is about: its kind, the limit in words, and its implementations.

    `number` is its place in gate.toml. A claim names its implementation first, a regression its head. `where` is its
    suite, and its context where that is not cold, in words.
    """

    kind: Literal["claim", "regression"]
    words: str
    names: tuple[str, ...]
    where: str = ""
    number: int = 0


@dataclass(frozen=True)
class Loss:
    """A one-sided test that head is slower than base by more than `delta` (a log ratio), over `cases` cases.

    `low` and `high` are the ends of its 90 % interval as a speedup: each is the 95 % bound of a one-sided test. `p` is
    the p-value, `adjusted` the same adjusted by Benjamini and Hochberg over all cases.
    """

    speedup: float
    low: float
    high: float
    delta: float
    p: float
    adjusted: float
    cases: int = 1


@dataclass(frozen=True)
class Verdict:
    """The outcome of one limit on one case, the figures behind it, and the reason.

    `case` is None for a verdict on the file, or on the geometric mean where there is a `loss`. A claim has a `ratio`
    alone, a regression a `loss` too.
    """

    subject: Subject
    case: NormCase | None
    outcome: Outcome
    reason: Reason
    ratio: Ratio | None = None
    loss: Loss | None = None

    @property
    def for_speed(self) -> bool:
        """Whether it is REGRESSED because of times, so that measuring again may change it."""
        return self.outcome == "REGRESSED" and (self.ratio is not None or self.loss is not None)


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """The code of the gravest verdict; nothing judged is an error."""
    outcomes = {verdict.outcome for verdict in verdicts}
    gravest: list[Outcome] = [outcome for outcome in GRAVEST_OUTCOME_FIRST if outcome in outcomes]
    return EXIT_CODES[gravest[0] if gravest else "ERROR"]
