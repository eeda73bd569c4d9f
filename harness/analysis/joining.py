"""Joins the rows of a case over the processes that measured it, for gates and reports.

Each process writes a row for every implementation on a case; together these rows are one result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median

from harness.analysis import evidence
from harness.analysis.pairing import Paired, paired, speedups, why_not_interleaved
from harness.analysis.statistics import (
    IncomparableError,
    Ratio,
    aa_band,
    across_processes,
    median_and_spread,
)
from harness.cases import NormCase
from harness.records.file import Results
from harness.records.reasons import Reason, together
from harness.records.schema import RANKED, SAME_TRAFFIC_ADD, Role, RowRecord, SelfTestRecord, Status, Timing

TIMES_T0 = 10  # a time below so many t0, the reading of two events with nothing between them, is not ranked
GRAVEST_FIRST: tuple[Status, ...] = (
    "wrong",
    "impossible",
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
    """The rows of one implementation (or of one helper) on one case, in order of process.

    `t0_us` is what two events read with nothing between them, by process; without a self-test there is none. The times
    of the processes `set_aside` do not count, as their t0 is too large for the case and that of others is not.
    """

    rows: tuple[RowRecord, ...]
    t0_us: Mapping[int, float] = field(default_factory=dict[int, float])
    set_aside: frozenset[int] = frozenset()

    @property
    def impl(self) -> str:
        """The implementation's name; for an A/A twin, the name of the implementation that it repeats."""
        return self.rows[0].impl

    @property
    def case(self) -> NormCase:
        """The case that the rows belong to."""
        return self.rows[0].case

    @cached_property
    def status(self) -> Status:
        """The gravest status of any process; nondeterministic where only the processes differ from each other."""
        statuses = {row.status for row in self.rows}
        gravest: Status = next(status for status in GRAVEST_FIRST if status in statuses)
        if gravest == "ok" and any(self._other_bits):
            return "nondeterministic"
        return gravest

    @cached_property
    def reason(self) -> Reason | None:
        """The reason for the status, with process numbers where the processes differ."""
        if all(row.status != self.status for row in self.rows):  # only the processes differ from each other
            return self.summed_up(Reason("other_bits") if other else None for other in self._other_bits)
        unequal = any(row.status != self.status for row in self.rows)
        return self.summed_up(
            (row.reason or (Reason("status", {"status": row.status}) if unequal else None))
            if row.status == self.status
            else None
            for row in self.rows
        )

    @cached_property
    def timing_by_process(self) -> dict[int, Timing]:
        """The timings that count, by process."""
        return {
            row.process: row.timing
            for row in self.rows
            if row.process not in self.set_aside and row.timing and row.timing.samples_us
        }

    @property
    def timings(self) -> tuple[Timing, ...]:
        """The timings that count, in order of process."""
        return tuple(self.timing_by_process.values())

    @cached_property
    def median_us(self) -> float | None:
        """The median of the medians of the processes; None where none timed it."""
        medians = [median_and_spread(timing.samples_us)[0] for timing in self.timings]
        return median(medians) if medians else None

    @property
    def shortest_rankable_us(self) -> float:
        """The time below which it is not ranked, by the largest t0 of its processes; 0 without a self-test."""
        return TIMES_T0 * max((self.t0_us.get(process, 0.0) for process in self.timing_by_process), default=0.0)

    @property
    def too_short(self) -> bool:
        """Whether its time is below the shortest that the engine can rank."""
        return self.median_us is not None and self.median_us < self.shortest_rankable_us

    @cached_property
    def doubt(self) -> Reason | None:
        """Why the times of a result that passed may not be compared, in any process that counts; or None."""
        return self.summed_up(None if row.process in self.set_aside else _doubt(row) for row in self.rows)

    @cached_property
    def _other_bits(self) -> list[bool]:
        """For each row, whether its gradients' fingerprint differs from the first one of any process."""
        prints = [row.verification.fingerprint if row.verification else None for row in self.rows]
        first = next((bits for bits in prints if bits is not None), None)
        return [bits is not None and bits != first for bits in prints]

    def summed_up(self, reasons: Iterable[Reason | None]) -> Reason | None:
        """The reasons of the rows as one: the reason itself if all are equal, else each with its process numbers."""
        processes: dict[Reason, list[int]] = {}
        for row, reason in zip(self.rows, reasons, strict=True):
            if reason is not None:
                processes.setdefault(reason, []).append(row.process)
        if len(processes) == 1 and len(next(iter(processes.values()))) == len(self.rows):
            return next(iter(processes))
        return together([Reason("process", {"numbers": n}, [reason]) for reason, n in processes.items()])


class JoinedCase(dict[tuple[str, Role], Joined]):
    """The joined rows of one case by (implementation, role), and the reasons for no verdict on them.

    `interference` concerns all of them, `disturbed` the speed of single implementations, `incomplete` all that is said
    of one; `set_aside` are the processes whose times do not count.
    """

    def __init__(self, joined: Mapping[tuple[str, Role], Joined], interference: Reason | None = None) -> None:
        super().__init__(joined)
        self.interference = interference
        self.disturbed: dict[str, Reason] = {}
        self.incomplete: dict[str, Reason] = {}
        self.set_aside = frozenset[int]().union(*(each.set_aside for each in joined.values()))

    def no_verdict_reason(self, *impls: str) -> Reason | None:
        """Why there is no verdict on the speed of these implementations on this case, or None."""
        reasons = self.disturbed | self.incomplete
        disturbed = [impl for impl in impls if impl in reasons]
        if self.interference or not disturbed:
            return self.interference
        reason = reasons[disturbed[0]]
        return reason if len(impls) == 1 else Reason("of_impl", {"impl": disturbed[0]}, [reason])

    def find_incomplete(self, processes: int) -> None:
        """Fill `incomplete` with the implementations that lack rows of a process, or their verification."""
        for (impl, role), joined in self.items():
            missing = sorted(set(range(processes)) - {row.process for row in joined.rows})
            if missing and any(row.timing for row in joined.rows):
                self.incomplete[impl] = Reason("rows_missing", {"missing": missing})
            elif role == "impl" and any(row.status in RANKED and not row.verification for row in joined.rows):
                self.incomplete[impl] = Reason("not_verified")

    def find_disturbed(self, baseline: str) -> None:
        """Fill `disturbed` with the implementations whose ratios over the baseline show interference."""
        if (base := self.get((baseline, "impl"))) is None:
            return
        for (impl, role), joined in self.items():
            if role == "impl" and impl != baseline:
                reasons = (evidence.against_samples(pair) for pair in interleaved(base, joined))
                if reason := next(filter(None, reasons), None):
                    self.disturbed[impl] = Reason("ratio_disturbed", {"baseline": baseline}, [reason])


def last_rows(rows: Iterable[RowRecord]) -> list[RowRecord]:
    """The rows that count: where a process has several of an implementation on a case the last, as resuming appends."""
    return list({(row.process, row.case, row.impl, row.role): row for row in rows}.values())


def untested(results: Results) -> dict[str, list[RowRecord]]:
    """The timed rows that count of which the GPU made no self-test "before" in their process, or none "after" them.

    One after them is behind them in the file. That of an earlier sitting is not, and so a sitting that was killed, or
    whose self-test died, has measured rows without.
    """
    before = {(test.process, test.gpu) for test in results.selftests if test.when == "before"}
    after = {
        (test.process, test.gpu): rows
        for test, rows in zip(results.selftests, results.selftests_behind, strict=True)
        if test.when == "after"
    }
    last = {(row.process, row.case, row.impl, row.role): number for number, row in enumerate(results.rows)}
    timed = [(number, results.rows[number]) for number in last.values() if results.rows[number].timing]
    return {
        "before": [row for _, row in timed if (row.process, row.gpu) not in before],
        "after": [row for number, row in timed if number >= after.get((row.process, row.gpu), 0)],
    }


def join(rows: Iterable[RowRecord], t0_us: Mapping[int, float] | None = None) -> JoinedCase:
    """Join the rows of one case; `t0_us` is by process.

    Where ten times the t0 of some processes is more than the fastest takes, and that of others is not, those are set
    aside: a process on a host with a large t0 shall not take the ranking from those that have one. The rule looks at
    t0 and at the median over all processes, so what a process read does not decide whether it counts.
    """
    latest: dict[tuple[str, Role], dict[int, RowRecord]] = {}
    for row in last_rows(rows):
        latest.setdefault((row.impl, row.role), {})[row.process] = row
    joined = {
        key: Joined(tuple(by_process[process] for process in sorted(by_process)), t0_us or {})
        for key, by_process in latest.items()
    }
    if too_coarse := _too_coarse(joined):
        joined = {key: replace(each, set_aside=too_coarse) for key, each in joined.items()}
    twins = [impl for impl, role in joined if role == "again" and (impl, "impl") in joined]
    pairs = (pair for impl in twins for pair in interleaved(joined[impl, "impl"], joined[impl, "again"]))
    return JoinedCase(joined, evidence.against_pairs(pairs))


def by_case(results: Results) -> dict[NormCase, JoinedCase]:
    """The joined rows of each case, in the order of the file."""
    rows: dict[NormCase, list[RowRecord]] = {}
    for row in results.rows:
        rows.setdefault(row.case, []).append(row)
    cases = {case: join(of_case, _t0_us(of_case, results.selftests)) for case, of_case in rows.items()}
    for case, joined in cases.items():
        against_gpus = evidence.against_run(_selftests_of(rows[case], results.selftests))
        joined.interference = evidence.against_device(case) or against_gpus or joined.interference
        joined.find_disturbed(results.run.settings.baseline)
    return cases


def _t0_us(rows: Iterable[RowRecord], selftests: Sequence[SelfTestRecord]) -> dict[int, float]:
    """The largest t0 of each process's own self-tests on its GPU, or of all where it has none."""
    known_us: dict[object, float] = {}
    for test in selftests:
        for place in (None, (test.process, test.gpu)):
            known_us[place] = max(known_us.get(place, 0.0), test.budget.t0_us)
    t0s_us: dict[int, float] = {}
    for process, gpu in {(row.process, row.gpu) for row in rows}:
        own_us = known_us.get((process, gpu), known_us.get(None, 0.0))
        t0s_us[process] = max(t0s_us.get(process, 0.0), own_us)
    return t0s_us


def _too_coarse(joined: Mapping[tuple[str, Role], Joined]) -> frozenset[int]:
    """The processes that cannot rank the fastest implementation where another can; empty where none can, or all."""
    passed = [each for (_, role), each in joined.items() if role == "impl" and each.status in RANKED]
    t0_us = {process: each.t0_us.get(process, 0.0) for each in passed for process in each.timing_by_process}
    if len(t0_us) < 2:
        return frozenset()
    undoubted = [replace(each, rows=tuple(row for row in each.rows if _doubt(row) is None)) for each in passed]
    fastest_us = min((each.median_us for each in undoubted if each.median_us is not None), default=math.inf)
    coarse = frozenset(process for process, t0 in t0_us.items() if TIMES_T0 * t0 > fastest_us)
    return coarse if len(coarse) < len(t0_us) else frozenset()


def _selftests_of(rows: Sequence[RowRecord], selftests: Sequence[SelfTestRecord]) -> list[SelfTestRecord]:
    """The self-tests on the GPUs that measured these rows; all self-tests in a run on one GPU."""
    gpus = {row.gpu for row in rows}
    return [record for record in selftests if record.gpu in gpus]


def status_and_reason(joined: Joined | None) -> Reason:
    """The status of a result, made of the reason for it."""
    if joined is None:
        return Reason("absent")
    return Reason("status", {"status": joined.status}, [joined.reason] if joined.reason else [])


def impl_is(impl: str, joined: Joined | None) -> Reason:
    """What an implementation is by its status, as in `quack is wrong`."""
    return Reason("impl_is", {"impl": impl}, [status_and_reason(joined)])


def not_measured(impl: str, joined: Joined | None) -> Reason:
    """That an implementation was not measured, by its status."""
    return Reason("not_measured", {"impl": impl}, [status_and_reason(joined)])


def same_traffic_add(case: JoinedCase) -> Joined | None:
    """The add that reads and writes as much as the case must; None where the case has none."""
    return next((joined for (_, role), joined in case.items() if role == SAME_TRAFFIC_ADD), None)


def too_short(joined: Joined) -> Reason:
    """That a time is below the shortest that can be ranked."""
    return Reason("too_short", {"times_t0": TIMES_T0, "limit_us": joined.shortest_rankable_us})


def comparable(joined: Joined | None) -> Joined:
    """The result itself; raises IncomparableError with the reason where no ratio may be formed of it."""
    known = _undoubted(joined)
    if known.too_short:
        raise IncomparableError(Reason("impl_is", {"impl": known.impl}, [too_short(known)]))
    return known


def pairs(base: Joined | None, other: Joined | None) -> list[Paired]:
    """Both results paired in every process that timed both, for a ratio.

    Raises IncomparableError where either may not be compared, or where a process timed them in different blocks.
    """
    return _pairs(comparable(base), comparable(other))


def ratio(base: Joined | None, other: Joined | None) -> Ratio:
    """The speedup of other over base, over all processes; raises IncomparableError as `pairs` does."""
    return across_processes(speedups(pairs(base, other)))


def interleaved(base: Joined, other: Joined) -> list[Paired]:
    """Both results paired in every process that timed them in the same blocks, even where no ratio may be formed."""
    return paired(base.timing_by_process, other.timing_by_process)


def band(case: JoinedCase, baseline: str | None) -> float | None:
    """The A/A band of a case, as a log ratio: the baseline's, or the widest where that has no twin; None without any.

    Infinite where the case has `interference`.
    """
    if case.interference:
        return math.inf
    twins = [impl for impl, role in case if role == "again"]
    bands = {impl: aa_band(ratios) for impl in twins if (ratios := _aa_ratios(case, impl))}
    if baseline in bands:
        return bands[baseline]
    return max(bands.values(), default=None)


def aa_ratio(case: JoinedCase, impl: str) -> Ratio | None:
    """The measured ratio of an implementation and its twin, whose true value is 1; None without a comparable twin."""
    ratios = _aa_ratios(case, impl)
    return across_processes(ratios) if ratios else None


def _aa_ratios(case: JoinedCase, impl: str) -> list[Ratio]:
    """The ratio of an implementation and its twin in each process, however short; empty without a comparable twin."""
    with suppress(IncomparableError):
        first, again = (_undoubted(case.get((impl, role))) for role in ("impl", "again"))
        return speedups(_pairs(first, again))
    return []


def _undoubted(joined: Joined | None) -> Joined:
    if joined is None:
        raise IncomparableError(Reason("absent"))
    if joined.status not in RANKED:
        raise IncomparableError(impl_is(joined.impl, joined))
    if reason := joined.doubt:
        raise IncomparableError(Reason("of_impl", {"impl": joined.impl}, [reason]))
    return joined


def _pairs(base: Joined, other: Joined) -> list[Paired]:
    if reason := why_not_interleaved(base.timing_by_process, other.timing_by_process):
        raise IncomparableError(reason)
    return paired(base.timing_by_process, other.timing_by_process)


def _doubt(row: RowRecord) -> Reason | None:
    timing = row.timing
    if timing is None or not timing.samples_us:
        return Reason("not_timed", parts=[row.untimed] if row.untimed else [])
    if not timing.proven:
        return Reason("unproven")
    if not all(math.isfinite(sample) and sample > 0 for sample in timing.samples_us):
        return Reason("not_times")
    return None
