"""Whether a results file bears out what is claimed of it: a pure function from results and limits to verdicts.

A limit is on a ratio measured in one run, inside the same blocks, never on a time: times from another machine mean
nothing here. What is wrong or not deterministic fails before any speed is looked at.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.cases import Norm, NormCase
from harness.errors import UsageError
from harness.joining import Joined, JoinedCase, band, by_case, ratio
from harness.records import RANKED, Budget
from harness.results import Results
from harness.stats import IncomparableError, Ratio

Outcome = Literal["PASS", "REGRESSED", "INCONCLUSIVE", "ERROR"]
EXIT_CODES: dict[Outcome, int] = {"PASS": 0, "REGRESSED": 1, "INCONCLUSIVE": 3, "ERROR": 2}
GRAVEST_FIRST: tuple[Outcome, ...] = ("ERROR", "REGRESSED", "INCONCLUSIVE", "PASS")

Span = Annotated[tuple[int, int], Field(description="smallest and largest, both included")]


class Claim(BaseModel):
    """`impl` is at least `at_least` times as fast as `over`, on every case of the file that the other fields fit.

    `deterministic` asks for the same bits in every repetition as well; without `over`, right and deterministic is all
    that is asked.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    impl: str
    over: str | None = None
    at_least: float = Field(default=1.0, gt=0)
    norm: Norm | None = None
    rows: Span | None = None
    cols: Span | None = None
    deterministic: bool = True

    def fits(self, case: NormCase) -> bool:
        """Whether the claim is about this case."""
        return (
            self.norm in (None, case.norm)
            and (self.rows is None or self.rows[0] <= case.rows <= self.rows[1])
            and (self.cols is None or self.cols[0] <= case.cols <= self.cols[1])
        )


class Limits(BaseModel):
    """A gate.toml: one or more claims."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: list[Claim] = Field(min_length=1)


@dataclass(frozen=True)
class Verdict:
    """What became of one claim on one case (None: on the file), with the ratio behind it and the reason in words."""

    claim: Claim
    case: NormCase | None
    outcome: Outcome
    reason: str
    ratio: Ratio | None = None


def read_limits(path: Path) -> Limits:
    """Read a gate.toml; raises UsageError with the key at fault."""
    try:
        return Limits.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name the limits with --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}; mend the line") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path}: {where}: {first['msg']}; docs/pull-requests.md lists the keys") from error


def judge(results: Results, limits: Limits) -> list[Verdict]:
    """A verdict for each claim on each case that it fits; a claim that fits nothing measured is an ERROR.

    Raises UsageError for an implementation that the results do not know.
    """
    known = {row.impl for row in results.rows if row.role == "impl"}
    for claim in limits.claim:
        for name in filter(None, (claim.impl, claim.over)):
            if name not in known:
                names = ", ".join(sorted(known))
                raise UsageError(f"gate: no implementation {name!r} in these results; there are {names}")
    return [verdict for claim in limits.claim for verdict in _judge_claim(results, claim)]


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """The code of the gravest verdict; nothing judged is an error."""
    outcomes = {verdict.outcome for verdict in verdicts}
    gravest: list[Outcome] = [outcome for outcome in GRAVEST_FIRST if outcome in outcomes]
    return EXIT_CODES[gravest[0] if gravest else "ERROR"]


def _judge_claim(results: Results, claim: Claim) -> list[Verdict]:
    cases = {
        case: of for case, of in by_case(results).items() if claim.fits(case) and any(role == "impl" for _, role in of)
    }
    if not cases:
        return [Verdict(claim, None, "ERROR", "no case of these results fits the claim")]
    return [_judge_case(of, claim, case, results.budget) for case, of in cases.items()]


def _judge_case(found: JoinedCase, claim: Claim, case: NormCase, budget: Budget | None) -> Verdict:
    mine = found.get((claim.impl, "impl"))
    if mine is None or mine.status in ("missing", "unsupported"):
        return Verdict(claim, case, "ERROR", f"{claim.impl} was not measured: {_why(mine)}")
    if mine.status not in RANKED or (mine.status == "nondeterministic" and claim.deterministic):
        return Verdict(claim, case, "REGRESSED", f"{claim.impl} is {_why(mine)}")
    if claim.over is None:
        return Verdict(claim, case, "PASS", "right" + (" and deterministic" if claim.deterministic else ""))
    try:
        measured = ratio(found.get((claim.over, "impl")), mine, budget)
    except IncomparableError as error:
        return Verdict(claim, case, "ERROR", f"no ratio: {error}")
    return _judge_ratio(claim, case, measured, band(found, claim.over))


def _judge_ratio(claim: Claim, case: NormCase, ratio: Ratio, aa: float | None) -> Verdict:
    """Pass or fail only where the interval, widened by the A/A band, leaves no doubt: as a verdict is reached."""
    if aa is None:
        return Verdict(claim, case, "INCONCLUSIVE", "no A/A pair in this case", ratio)
    low, high = ratio.low * math.exp(-aa), ratio.high * math.exp(aa)
    words = f"{ratio.value:.3f} times as fast as {claim.over}, between {low:.3f} and {high:.3f}"
    if low >= claim.at_least:
        return Verdict(claim, case, "PASS", words, ratio)
    return Verdict(claim, case, "REGRESSED" if high < claim.at_least else "INCONCLUSIVE", words, ratio)


def _why(joined: Joined | None) -> str:
    if joined is None:
        return "absent"
    return f"{joined.status}: {joined.reason}" if joined.reason else joined.status
