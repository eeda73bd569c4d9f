"""A verdict as data: one object for a file, with a case for each shape and norm, and what was in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Literal, get_args

from pydantic import Field, computed_field

from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.records.schema import Record, StoredCase

SCHEMA_VERSION = 1
CONFIDENCE = 0.95
RESAMPLES = 2000
WIDEST = 0.1  # of a conclusive speedup, half its interval relative to it

VerdictStatus = Literal[
    "right",
    "nondeterministic",
    "wrong",
    "impossible",
    "tampered",
    "crashed",
    "timeout",
    "oom",
    "unsupported",
    "missing",
    "inconclusive",
]
GRAVITY: tuple[str, ...] = ("right", "inconclusive", "nondeterministic", *get_args(VerdictStatus)[2:-1])


class Interval(Record):
    """A figure with the interval that it lies in at 95 % confidence."""

    value: float
    low: float
    high: float


class Speed(Record):
    """How fast a right implementation is, by the parent's clock.

    `us` is the time of one call, `floor_us` the time below which none is believed, `score` the time of the case's
    traffic at the memory's rate over the judged one. `speedups` are over trusted implementations, by name, each from
    stretches in turns; `best_peer` is the fastest of them.
    """

    us: Interval
    floor_us: float
    score: float
    speedups: dict[str, Interval]
    baseline: str
    best_peer: str
    stretches: int
    calls: int = Field(description="of a stretch, each on inputs of its own")
    stretch_us: float
    overhead_us: float = Field(description="the judge's own time of a stretch, which is subtracted")

    @property
    def is_conclusive(self) -> bool:
        """Whether the speedup over the baseline is known well enough."""
        speedup = self.speedups[self.baseline]
        return (speedup.high - speedup.low) / 2 <= WIDEST * speedup.value


class Answers(Record):
    """How many answers were given, compared with float64, and compared bit by bit with an earlier one of the draw."""

    given: int = 0
    verified: int = 0
    repeated: int = 0
    differing: int = 0
    differing_in_new_process: int = 0


class CaseVerdict(Record):
    """The verdict on one case.

    `deterministic` is None where that is not known. `rho` is the largest error of each gradient, in units of the
    unavoidable one. `layers` says which protections were in force.
    """

    case: StoredCase
    key: str
    status: VerdictStatus
    reason: Reason | None = None
    deterministic: Literal["yes", "within a process", "no"] | None = None
    rho: dict[str, float] = Field(default={})
    answers: Answers = Answers()
    speed: Speed | None = None
    layers: dict[str, bool] = Field(default={})
    seconds: float = 0.0

    @computed_field
    @property
    def text(self) -> str | None:
        """The reason in words."""
        return sentence(self.reason) if self.reason else None


class FileVerdict(Record):
    """The verdict on a file: that of its gravest case."""

    schema_version: Literal[1] = SCHEMA_VERSION
    file: str
    sha256: str
    name: str | None = None
    version: int | None = None
    normbwd: str
    engine: int
    device: str
    status: VerdictStatus
    exit_code: int
    cases: list[CaseVerdict]


def gravest(statuses: Sequence[str]) -> str:
    """The gravest of several statuses."""
    return max(statuses, key=GRAVITY.index)


def that_count(verdicts: Sequence[CaseVerdict]) -> Sequence[CaseVerdict]:
    """Those of norms that the file supports somewhere; all where it supports none."""
    supported = {verdict.case.norm for verdict in verdicts if verdict.status != "unsupported"}
    return [verdict for verdict in verdicts if verdict.case.norm in supported] or verdicts


def exit_code(status: str) -> int:
    """0 right, 3 inconclusive, 1 anything else."""
    return {"right": 0, "inconclusive": 3}.get(status, 1)


def speed_of(stretches_us: Mapping[str, Sequence[float]], judged: str, nothing: str, **known: Any) -> Speed:
    """The speed of the judged implementation, from the times of stretches in turns: the n-th of each are of one turn.

    What a stretch of `nothing` takes is subtracted; each resampling draws that anew, too.
    """
    import numpy as np  # not before a bad file is refused

    calls, baseline, turns = known["calls"], known["baseline"], len(stretches_us[judged])
    drawn = np.random.default_rng(0).integers(turns, size=(2, RESAMPLES, turns))
    drawn[:, 0] = np.arange(turns)  # the figure itself; the others are its interval
    overheads_us = np.median(np.array(stretches_us[nothing])[drawn[1]], axis=1, keepdims=True)
    logs = {
        name: np.log(np.maximum(np.array(all_us)[drawn[0]] - overheads_us, 1e-3) / calls)
        for name, all_us in stretches_us.items()
        if name != nothing
    }
    mine = logs.pop(judged)
    speedups = {name: _interval(theirs - mine) for name, theirs in logs.items()}
    us = _interval(mine)
    return Speed(
        us=us,
        floor_us=known["floor_us"],
        score=known["traffic_us"] / us.value,
        speedups=speedups,
        baseline=baseline,
        best_peer=min(speedups, key=lambda name: speedups[name].value),
        stretches=turns,
        calls=calls,
        stretch_us=median(stretches_us[judged]),
        overhead_us=float(overheads_us[0, 0]),
    )


def _interval(logs: Any) -> Interval:
    """The median of the first row, with the interval of those of all rows."""
    import numpy as np

    medians = np.exp(np.median(logs, axis=1))
    low, high = np.quantile(medians, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(value=float(medians[0]), low=float(low), high=float(high))
