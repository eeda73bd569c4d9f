"""Joins the rows of a case over the processes that measured it, for gates and reports.

Each process writes a row for every implementation on a case; together these rows are one result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median

from harness.analysis import evidence
from harness.analysis.pairing import Paired, paired, speedups, why_not_interleaved
from harness.analysis.statistics import IncomparableError, Ratio, aa_band, across_processes
from harness.cases import NormCase
from harness.grouping import grouped
from harness.records.file import Results
from harness.records.reasons import Reason, together
from harness.records.schema import FAILED, RANKED, SAME_TRAFFIC_ADD, Role, RowRecord, SelfTestRecord, Status, Timing

TIMES_T0 = 10  # a time below so many t0, the reading of two events with nothing between them, is not ranked
GRAVEST_FIRST: tuple[Status, ...] = (*FAILED, "unsupported", "missing", "nondeterministic", "ok")


@dataclass(frozen=True, eq=False)
class Joined:
    """The rows of one implementation (or of one helper) on one case, in order of process.

    `t0_us` is what two events read with nothing between them, by process; without a self-test there is none. The times
    of the processes `set_aside` do not count, as their t0 is too large for the case and that of others is not.
    """

    rows: tuple[RowRecord, ...]
    t0_us: Mapping[int, float] = field(default_factory=dict[int, float])
    set_aside: frozenset[int] = frozenset()
    pairs_with: dict[Joined, list[Paired]] = field(default_factory=dict["Joined", list[Paired]], init=False, repr=False)

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
        return "nondeterministic" if gravest == "ok" and any(self._other_bits) else gravest

    @cached_property
    def reason(self) -> Reason | None:
        """The reason for the status, with process numbers where the processes differ."""
        having = [row.status == self.status for row in self.rows]
        if not any(having):  # only the processes differ from each other
            return self.summed_up(Reason("other_bits") if other else None for other in self._other_bits)
        unsaid = None if all(having) else Reason("status", {"status": self.status})
        return self.summed_up(
            (row.reason or unsaid) if has else None for row, has in zip(self.rows, having, strict=True)
        )

    @cached_property
    def timing_by_process(self) -> dict[int, Timing]:
        """The timings that count, by process."""
        counting = (row for row in self.rows if row.process not in self.set_aside)
        return {row.process: row.timing for row in counting if row.timing and row.timing.samples_us}

    @property
    def timings(self) -> tuple[Timing, ...]:
        """The timings that count, in order of process."""
        return tuple(self.timing_by_process.values())

    @cached_property
    def medians_us(self) -> list[float]:
        """The median time in each process whose times count."""
        return [median(timing.samples_us) for timing in self.timings]

    @property
    def median_us(self) -> float | None:
        """The median of the medians of the processes; None where none timed it."""
        return median(self.medians_us) if self.medians_us else None

    @property
    def shortest_rankable_us(self) -> float:
        """The time below which it is not ranked, by the largest t0 of its processes; 0 without a self-test."""
        return TIMES_T0 * max((self.t0_us.get(process, 0.0) for process in self.timing_by_process), default=0.0)

    @property
    def too_short(self) -> Reason | None:
        """That its time is below the shortest that the engine can rank; None where it is not."""
        if self.median_us is None or self.median_us >= self.shortest_rankable_us:
            return None
        return Reason("too_short", {"times_t0": TIMES_T0, "limit_us": self.shortest_rankable_us})

    @cached_property
    def doubt(self) -> Reason | None:
        """Why the times of a result that passed may not be compared, in any process that counts; or None."""
        return self.summed_up(None if row.process in self.set_aside else _doubt(row) for row in self.rows)

    @property
    def is_rankable(self) -> bool:
        """Whether it passed, and its times are without doubt in every process."""
        return self.status in RANKED and self.doubt is None

    @cached_property
    def _other_bits(self) -> list[bool]:
        """For each row, whether its gradients' fingerprint differs from the first one of any process."""
        prints = [row.verification.fingerprint if row.verification else None for row in self.rows]
        first = next((bits for bits in prints if bits is not None), None)
        return [bits not in (None, first) for bits in prints]

    def summed_up(self, reasons: Iterable[Reason | None]) -> Reason | None:
        """The reasons of the rows as one: the reason itself if all are equal, else each with its process numbers."""
        pairs = zip(self.rows, reasons, strict=True)
        processes = grouped((reason, row.process) for row, reason in pairs if reason is not None)
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

    @property
    def impls(self) -> dict[str, Joined]:
        """The results of the implementations, without the helpers'."""
        return {impl: joined for (impl, role), joined in self.items() if role == "impl"}

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
            elif role == "impl" and any(row.status in RANKED and not row.is_verified for row in joined.rows):
                self.incomplete[impl] = Reason("not_verified")

    def find_disturbed(self, baseline: str) -> None:
        """Fill `disturbed` with the implementations whose ratios over the baseline show interference."""
        if (base := self.get((baseline, "impl"))) is None or base.doubt:
            return
        for impl, joined in self.impls.items():
            if impl == baseline or joined.doubt:
                continue
            if reason := evidence.against_pairs(interleaved(base, joined)):
                self.disturbed[impl] = Reason("ratio_disturbed", {"baseline": baseline}, [reason])


def untested(results: Results) -> dict[str, list[RowRecord]]:
    """The timed rows of which the GPU made no self-test "before" in their process, or none "after" them.

    One after them is behind them in the file. That of an earlier sitting is not, and so a sitting that was killed, or
    whose self-test died, has measured rows without.
    """
    before = {(test.process, test.gpu) for test in results.selftests if test.when == "before"}
    after = {
        (test.process, test.gpu): rows
        for test, rows in zip(results.selftests, results.selftests_behind, strict=True)
        if test.when == "after"
    }
    timed = [(number, row) for number, row in enumerate(results.rows) if row.timing]
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
    by_result: dict[tuple[str, Role], list[RowRecord]] = grouped(((row.impl, row.role), row) for row in rows)
    joined = {
        key: Joined(tuple(sorted(of_key, key=lambda row: row.process)), t0_us or {})
        for key, of_key in by_result.items()
    }
    if too_coarse := _too_coarse(joined):
        joined = {key: replace(each, set_aside=too_coarse) for key, each in joined.items()}
    twins = [impl for impl, role in joined if role == "again" and (impl, "impl") in joined]
    pairs = (pair for impl in twins for pair in interleaved(joined[impl, "impl"], joined[impl, "again"]))
    reason = evidence.against_pairs(pairs)
    return JoinedCase(joined, Reason("aa_pair", parts=[reason]) if reason else None)


def by_case(results: Results) -> dict[NormCase, JoinedCase]:
    """The joined rows of each case, in the order of the file."""
    t0s_us = _t0s_us(results.selftests)
    cases: dict[NormCase, JoinedCase] = {}
    for case, rows in grouped((row.case, row) for row in results.rows).items():
        places = {(row.process, row.gpu) for row in rows}
        t0_us: dict[int, float] = {}
        for process, gpu in places:
            t0_us[process] = max(t0_us.get(process, 0.0), t0s_us.get((process, gpu), t0s_us[None]))
        cases[case] = joined = join(rows, t0_us)
        gpus = {gpu for _, gpu in places}
        against_gpus = evidence.against_run([test for test in results.selftests if test.gpu in gpus])
        joined.interference = evidence.against_device(case) or against_gpus or joined.interference
        joined.find_disturbed(results.run.settings.baseline)
    return cases


def _t0s_us(selftests: Iterable[SelfTestRecord]) -> dict[tuple[int, int | None] | None, float]:
    """The largest t0 of each process's own self-tests on its GPU; under None that of all, for those without."""
    t0s_us: dict[tuple[int, int | None] | None, float] = {None: 0.0}
    for test in selftests:
        for place in (None, (test.process, test.gpu)):
            t0s_us[place] = max(t0s_us.get(place, 0.0), test.budget.t0_us)
    return t0s_us


def _too_coarse(joined: Mapping[tuple[str, Role], Joined]) -> frozenset[int]:
    """The processes that cannot rank the fastest implementation where another can; empty where none can, or all."""
    passed = [each for (_, role), each in joined.items() if role == "impl" and each.status in RANKED]
    t0_us = {process: each.t0_us.get(process, 0.0) for each in passed for process in each.timing_by_process}
    if len(set(t0_us.values())) < 2:
        return frozenset()
    undoubted = [replace(each, rows=tuple(row for row in each.rows if _doubt(row) is None)) for each in passed]
    fastest_us = min((each.median_us for each in undoubted if each.median_us is not None), default=math.inf)
    coarse = frozenset(process for process, t0 in t0_us.items() if TIMES_T0 * t0 > fastest_us)
    return coarse if len(coarse) < len(t0_us) else frozenset()


def impl_is(impl: str, joined: Joined | None, code: str = "impl_is") -> Reason:
    """What an implementation is by its status, as in `quack is wrong`; `not_measured` that it was not, for that."""
    if joined is None:
        return Reason(code, {"impl": impl}, [Reason("absent")])
    status = Reason("status", {"status": joined.status}, [joined.reason] if joined.reason else [])
    return Reason(code, {"impl": impl}, [status])


def same_traffic_add(case: JoinedCase) -> Joined | None:
    """The add that reads and writes as much as the case must; None where the case has none."""
    return next((joined for (_, role), joined in case.items() if role == SAME_TRAFFIC_ADD), None)


def comparable(joined: Joined | None, as_twin: bool = False) -> Joined:
    """The result itself; raises IncomparableError with the reason where no ratio may be formed of it.

    `as_twin` it is set beside another of the same code, where times alone count: it may be short or wrong.
    """
    if joined is None:
        raise IncomparableError(Reason("absent"))
    if joined.status not in RANKED and not as_twin:
        raise IncomparableError(impl_is(joined.impl, joined))
    if joined.doubt:
        raise IncomparableError(Reason("of_impl", {"impl": joined.impl}, [joined.doubt]))
    if joined.too_short and not as_twin:
        raise IncomparableError(Reason("impl_is", {"impl": joined.impl}, [joined.too_short]))
    return joined


def pairs(base: Joined | None, other: Joined | None, as_twins: bool = False) -> list[Paired]:
    """Both results paired in every process that timed both, for a ratio.

    Raises IncomparableError where either may not be compared, or where a process timed them in different blocks.
    """
    one, two = (comparable(each, as_twins) for each in (base, other))
    if reason := why_not_interleaved(one.timing_by_process, two.timing_by_process):
        raise IncomparableError(reason)
    return interleaved(one, two)


def ratio(base: Joined | None, other: Joined | None) -> Ratio:
    """The speedup of other over base, over all processes; raises IncomparableError as `pairs` does."""
    return across_processes(speedups(pairs(base, other)))


def interleaved(base: Joined, other: Joined) -> list[Paired]:
    """Both results paired in every process that timed them in the same blocks, even where no ratio may be formed.

    They are paired once: a ratio, its interference and the lead ask for the same ones.
    """
    if other not in base.pairs_with:
        base.pairs_with[other] = paired(base.timing_by_process, other.timing_by_process)
    return base.pairs_with[other]


def band(case: JoinedCase, baseline: str | None) -> float | None:
    """The A/A band of a case, as a log ratio: the baseline's, or the widest where that has no twin; None without any.

    Infinite where the case has `interference`.
    """
    if case.interference:
        return math.inf
    twins = [impl for impl, role in case if role == "again"]
    bands = {impl: aa_band(ratios) for impl in twins if (ratios := _aa_ratios(case, impl))}
    return bands.get(baseline or "", max(bands.values(), default=None))


def aa_ratio(case: JoinedCase, impl: str) -> Ratio | None:
    """The measured ratio of an implementation and its twin, whose true value is 1; None without a comparable twin."""
    ratios = _aa_ratios(case, impl)
    return across_processes(ratios) if ratios else None


def _aa_ratios(case: JoinedCase, impl: str) -> list[Ratio]:
    """The ratio of an implementation and its twin in each process, short or wrong too; empty without such a twin."""
    with suppress(IncomparableError):
        return speedups(pairs(case.get((impl, "impl")), case.get((impl, "again")), as_twins=True))
    return []


def _doubt(row: RowRecord) -> Reason | None:
    timing = row.timing
    if timing is None or not timing.samples_us:
        return Reason("not_timed", parts=[row.untimed] if row.untimed else [])
    if not timing.proven:
        return Reason("unproven")
    if not all(0 < sample < math.inf for sample in timing.samples_us):
        return Reason("not_times")
    return None
