"""The rows of a case joined over the processes that measured it: what a gate and a report both judge.

A case that several processes measured has a row of each for every implementation; together they are one result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

from harness.cases import NormCase
from harness.results.file import Results
from harness.results.schema import RANKED, Budget, Role, RowRecord, Status, Timing
from harness.results.statistics import (
    IncomparableError,
    Ratio,
    aa_band,
    across_processes,
    median_and_spread,
    median_log,
    speedups,
)

UNPROVEN = "unproven: the device may have waited for the host, so host time may be inside"
NOT_TIMES = "a sample is not a positive number of microseconds"
TIMES_T0 = 10  # below so many times what two events read with nothing between them, a time is mostly the engine's own
OTHER_BITS = "other bits in a new process"
GRAVEST_FIRST: tuple[Status, ...] = (
    "wrong",
    "crashed",
    "timeout",
    "oom",
    "unsupported",
    "missing",
    "nondeterministic",
    "ok",
)


@dataclass(frozen=True)
class Joined:
    """What all processes found of one implementation (or of one helper row) on one case, in order of process."""

    rows: tuple[RowRecord, ...]

    @property
    def impl(self) -> str:
        """The implementation's name; of a twin, that of whose twin it is."""
        return self.rows[0].impl

    @property
    def case(self) -> NormCase:
        """The case that the rows are of."""
        return self.rows[0].case

    @property
    def status(self) -> Status:
        """The gravest that any process found; nondeterministic where only the processes differ from each other."""
        found = {row.status for row in self.rows}
        gravest: Status = next(status for status in GRAVEST_FIRST if status in found)
        if gravest == "ok" and any(self._other_bits):
            return "nondeterministic"
        return gravest

    @property
    def reason(self) -> str | None:
        """Why the status is what it is, with the processes named where not all say the same."""
        if all(row.status != self.status for row in self.rows):  # no process could see it alone
            return self.told(OTHER_BITS if other else None for other in self._other_bits)
        unequal = any(row.status != self.status for row in self.rows)
        return self.told(
            (row.reason or (row.status if unequal else None)) if row.status == self.status else None
            for row in self.rows
        )

    @property
    def timings(self) -> tuple[Timing, ...]:
        """The timings of the processes that timed it."""
        return tuple(row.timing for row in self.rows if row.timing is not None and row.timing.samples_us)

    @property
    def median_us(self) -> float | None:
        """The median of the medians of the processes; None where none timed it."""
        medians = [median_and_spread(timing.samples_us)[0] for timing in self.timings]
        return median(medians) if medians else None

    @property
    def _other_bits(self) -> list[bool]:
        """Which rows have gradients of other bits than the first process that took a fingerprint of them."""
        prints = [row.verification.fingerprint if row.verification else None for row in self.rows]
        first = next((each for each in prints if each is not None), None)
        return [each is not None and each != first for each in prints]

    def told(self, texts: Iterable[str | None]) -> str | None:
        """One text for all rows where all have the same, else each text under the processes that it is of."""
        found: dict[str, list[str]] = {}
        for row, text in zip(self.rows, texts, strict=True):
            if text is not None:
                found.setdefault(text, []).append(str(row.process))
        if len(found) == 1 and len(next(iter(found.values()))) == len(self.rows):
            return next(iter(found))
        return "; ".join(f"process {', '.join(of)}: {text}" for text, of in found.items()) or None


JoinedCase = Mapping[tuple[str, Role], Joined]


def join(rows: Iterable[RowRecord]) -> dict[tuple[str, Role], Joined]:
    """The rows of one case by (implementation, role), the latest of each process, as a resumed run appends."""
    latest: dict[tuple[str, Role], dict[int, RowRecord]] = {}
    for row in rows:
        latest.setdefault((row.impl, row.role), {})[row.process] = row
    return {key: Joined(tuple(of[process] for process in sorted(of))) for key, of in latest.items()}


def by_case(results: Results) -> dict[NormCase, JoinedCase]:
    """The joined rows of each case, in the order of the file."""
    rows: dict[NormCase, list[RowRecord]] = {}
    for row in results.rows:
        rows.setdefault(row.case, []).append(row)
    return {case: join(of) for case, of in rows.items()}


def doubt(joined: Joined) -> str | None:
    """Why the times of a result that passed may not be compared, or None; one process in doubt is enough."""
    return joined.told(_doubt(row) for row in joined.rows)


def floor_us(budget: Budget | None) -> float:
    """The time below which nothing is ranked; 0 where no self-test found it."""
    return TIMES_T0 * budget.t0_us if budget else 0.0


def below_floor(joined: Joined, budget: Budget | None) -> bool:
    """Whether its time is too short for the engine to rank."""
    return joined.median_us is not None and joined.median_us < floor_us(budget)


def comparable(joined: Joined | None, budget: Budget | None = None) -> tuple[Timing, ...]:
    """The timings that a ratio may be formed of, one a process.

    Raises IncomparableError with the reason where none may.
    """
    if joined is None:
        raise IncomparableError("absent")
    if joined.status not in RANKED:
        raise IncomparableError(f"{joined.impl} is {joined.status}" + (f": {joined.reason}" if joined.reason else ""))
    if found := doubt(joined):
        raise IncomparableError(f"{joined.impl}: {found}")
    if below_floor(joined, budget):
        raise IncomparableError(f"{joined.impl} is below {TIMES_T0} x t0 ({floor_us(budget):.1f} us)")
    return joined.timings


def ratio(base: Joined | None, other: Joined | None, budget: Budget | None = None) -> Ratio:
    """The speedup of one result over another, over all processes.

    Raises IncomparableError where either may not be compared, or where a process timed the two apart.
    """
    return across_processes(_ratios(base, other, budget))


def _ratios(base: Joined | None, other: Joined | None, budget: Budget | None = None) -> list[Ratio]:
    """The speedup in each process, where there is one over all."""
    timings = comparable(base, budget), comparable(other, budget)
    if base is not None and other is not None:
        groups = {row.process: row.timing.group for row in base.rows if row.timing}
        for row in other.rows:
            if row.timing and groups.get(row.process, row.timing.group) != row.timing.group:
                named = f"{groups[row.process]} and {row.timing.group}"
                raise IncomparableError(f"process {row.process}: timed in different groups, {named}")
    return speedups(*timings)


def logs_by_process(base: Joined, other: Joined) -> dict[int, float]:
    """The log speedup that each process found that timed both, for two results of which `ratio` is formed."""
    of_base = {row.process: row.timing for row in base.rows}
    pairs = [(row.process, of_base.get(row.process), row.timing) for row in other.rows]
    return {process: median_log(one, two) for process, one, two in pairs if one is not None and two is not None}


def band(case: JoinedCase, baseline: str | None) -> float | None:
    """The A/A band of a case, as a log ratio: the baseline's, or where it has no twin the widest; None without any."""
    if (own := _band_of(case, baseline)) is not None:
        return own
    found = (_band_of(case, impl) for impl, role in case if role == "again")
    return max((each for each in found if each is not None), default=None)


def aa_ratio(case: JoinedCase, impl: str | None) -> Ratio | None:
    """The ratio of an implementation and its twin, which is 1 in truth; None where it has none to compare."""
    found = _aa_ratios(case, impl)
    return across_processes(found) if found else None


def quotients(base: Sequence[Timing], other: Sequence[Timing]) -> list[float]:
    """Median of base over median of other, for each process in which both stood in the same blocks."""
    of_base = {(timing.group, timing.flush): timing for timing in base}
    pairs = [(of_base.get((timing.group, timing.flush)), timing) for timing in other]
    return [
        median_and_spread(first.samples_us)[0] / median_and_spread(second.samples_us)[0]
        for first, second in pairs
        if first is not None
    ]


def _band_of(case: JoinedCase, impl: str | None) -> float | None:
    found = _aa_ratios(case, impl)
    return aa_band(found) if found else None


def _aa_ratios(case: JoinedCase, impl: str | None) -> list[Ratio]:
    """The ratio of an implementation and its twin in each process; none where it has no twin to compare."""
    if impl is None or (impl, "again") not in case:
        return []
    with suppress(IncomparableError):
        return _ratios(case.get((impl, "impl")), case[impl, "again"])
    return []


def _doubt(row: RowRecord) -> str | None:
    timing = row.timing
    if timing is None or not timing.samples_us:
        return f"not timed: {row.untimed}" if row.untimed else "not timed"
    if not timing.proven:
        return UNPROVEN
    if not all(math.isfinite(sample) and sample > 0 for sample in timing.samples_us):
        return NOT_TIMES
    return None
