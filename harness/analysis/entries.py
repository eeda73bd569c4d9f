"""One implementation on one case for reports: its standing, and the figures that the standing allows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from harness.analysis.checks import Checked, join_verifications, other_bits
from harness.analysis.joining import Joined, interleaved, ratio, too_short
from harness.analysis.statistics import IncomparableError, Ratio, SpeedVerdict, geomean, median_and_spread, verdict
from harness.analysis.waiting import Waiting, waiting_in
from harness.cases import NormCase
from harness.cases.traffic import moved_bytes
from harness.records.reasons import TEXT, Reason
from harness.records.run_records import ImplRecord
from harness.records.schema import RANKED, Flush, Kernel, KernelTotals, Status, Timing

# ranked: passed, timed, comparable; unranked: passed and timed, but its time cannot be set beside the others';
# verified: passed, not timed; failed: ran and did not pass; absent: never ran here (missing, unsupported).
Standing = Literal["ranked", "unranked", "verified", "failed", "absent"]


@dataclass(frozen=True)
class Entry:
    """One implementation on one case, over all processes that measured it.

    `median_us` (the median of the medians of the processes) and `spread` (relative, of all samples) exist for ranked
    and unranked entries; speedup, verdict and bandwidth for ranked ones only, and speedup and verdict not for the
    baseline itself. `kernels` and `kernel_totals` are of the first process that has them, None where they are unknown.
    `waiting` is None where no sample waited for a kernel beside.
    """

    impl: str
    standing: Standing
    status: Status
    reason: Reason | None
    median_us: float | None
    spread: float | None
    blocks: int
    processes: int
    speedup: Ratio | None
    verdict: SpeedVerdict | None
    bandwidth_gbps: float | None
    percent_of_add: float | None
    percent_of_copy: float | None
    percent_of_datasheet: float | None
    checked: Checked
    peak_extra_bytes: int | None
    kernels: tuple[Kernel, ...] | None
    kernel_totals: KernelTotals | None
    notes: tuple[Reason, ...]
    waiting: Waiting | None
    prepare_s: float | None
    via: Literal["kernel", "autograd"]
    in_place: bool
    proven: bool
    too_short: bool
    disturbed: bool = False
    only_too_short: bool = False

    @property
    def other_bits(self) -> str | None:
        """The mark of a result with bits that differ, from run to run or only in a new process; None for any other."""
        return other_bits(self.status, self.checked)

    @property
    def label(self) -> str:
        """The name, marked where the result has other bits or is unproven."""
        mark = self.other_bits or (None if self.proven else "unproven")
        return f"{self.impl} ({mark})" if mark else self.impl

    @property
    def usually_waits(self) -> bool:
        """Whether at least half of the samples waited for the end of the kernel beside."""
        return self.waiting is not None and self.waiting.usual


@dataclass(frozen=True)
class Yardsticks:
    """The reference values of one case: baseline, add, A/A band, datasheet; each is None where the case has none.

    `groups` are the groups of blocks in which the case is compared, with their flush: one for each process.
    `processes` is the number in the run's settings. `evidence` returns why an implementation's speed has no verdict, or
    None.
    """

    groups: frozenset[tuple[str, Flush]]
    baseline: Joined | None
    add: Joined | None
    band: float | None
    datasheet_gbps: float | None
    copy_gbps: float | None
    processes: int = 1
    evidence: Callable[[str], Reason | None] | None = None


def make_entry(joined: Joined, impl: ImplRecord | None, against: Yardsticks) -> Entry:
    """The entry of a result, with only the figures that its status and its timings allow."""
    short, disturbed = too_short(joined) if joined.too_short else None, _disturbed(joined, against)
    standing, why = _standing(joined, joined.doubt or _apart(joined, against) or short or disturbed)
    timings = joined.timings if standing in ("ranked", "unranked") else ()
    median = joined.median_us if timings else None
    ranked_us = median if standing == "ranked" else None
    speedup = _speedup(joined, against) if standing == "ranked" else None
    bandwidth = bandwidth_gbps(joined.case, ranked_us)
    waiting = waiting_in(joined.timings)
    profiled = next((row for row in joined.rows if row.kernels is not None), None)
    return Entry(
        impl=joined.impl,
        standing=standing,
        status=joined.status,
        reason=why,
        median_us=median,
        spread=_spread(timings, median),
        blocks=sum(len(timing.samples_us) for timing in timings),
        processes=len(timings),
        speedup=speedup,
        verdict=verdict(speedup, against.band) if speedup is not None and against.band is not None else None,
        bandwidth_gbps=bandwidth,
        percent_of_add=percent_of_add(against.add, joined) if ranked_us else None,
        percent_of_copy=_percent(bandwidth, against.copy_gbps),
        percent_of_datasheet=_percent(bandwidth, against.datasheet_gbps),
        checked=join_verifications([row.verification for row in joined.rows if row.verification]),
        peak_extra_bytes=max(
            (row.peak_extra_bytes for row in joined.rows if row.peak_extra_bytes is not None), default=None
        ),
        kernels=tuple(profiled.kernels) if profiled and profiled.kernels is not None else None,
        kernel_totals=profiled.kernel_totals if profiled else None,
        notes=_notes(joined, impl, against.processes, waiting),
        waiting=waiting,
        prepare_s=next((row.prepare_s for row in joined.rows if row.prepare_s is not None), None),
        via=impl.via if impl else "kernel",
        in_place=impl.in_place if impl else False,
        proven=all(timing.proven for timing in joined.timings),
        too_short=standing == "unranked" and joined.too_short,
        only_too_short=standing == "unranked" and why == short and not disturbed,
        disturbed=standing == "unranked" and disturbed is not None,
    )


def bandwidth_gbps(case: NormCase, us: float | None) -> float | None:
    """The bytes that the case must move over a time, in GB/s."""
    return moved_bytes(case) / us / 1e3 if us else None


def percent_of_add(add: Joined | None, joined: Joined) -> float | None:
    """The time of the same-traffic add over that of a result, in percent, where they share blocks and flush."""
    quotients = [pair.ratio_of_medians for pair in interleaved(add, joined)] if add else []
    return 100 * geomean(quotients) if quotients else None


def _standing(joined: Joined, why_not: Reason | None) -> tuple[Standing, Reason | None]:
    if joined.status not in RANKED:
        return ("absent" if joined.status in ("missing", "unsupported") else "failed"), joined.reason
    if not joined.timings:
        return "verified", joined.summed_up(row.untimed for row in joined.rows)
    return ("unranked", why_not) if why_not else ("ranked", joined.reason)


def _apart(joined: Joined, against: Yardsticks) -> Reason | None:
    return joined.summed_up(
        Reason("timed_apart", {"group": timing.group, "flush": timing.flush})
        if timing and (timing.group, timing.flush) not in against.groups
        else None
        for timing in (joined.timing_by_process.get(row.process) for row in joined.rows)
    )


def _disturbed(joined: Joined, against: Yardsticks) -> Reason | None:
    return against.evidence(joined.impl) if against.evidence else None


def _speedup(joined: Joined, against: Yardsticks) -> Ratio | None:
    if against.baseline is None or joined.impl == against.baseline.impl:
        return None
    with suppress(IncomparableError):
        return ratio(against.baseline, joined)
    return None


def _spread(timings: tuple[Timing, ...], median_us: float | None) -> float | None:
    """Half the inter-quartile range of the samples of all processes, over the median."""
    if not median_us:
        return None
    middle, spread = median_and_spread([sample for timing in timings for sample in timing.samples_us])
    return spread * (middle / median_us)


def _percent(bandwidth: float | None, limit: float | None) -> float | None:
    return 100 * bandwidth / limit if bandwidth and limit else None


def _scatter(joined: Joined) -> list[Reason]:
    """A note on the range of the processes' medians, for an implementation that makes a choice in each process."""
    medians = [median_and_spread(timing.samples_us)[0] for timing in joined.timings]
    if len(medians) < 2:
        return []
    fields = {"processes": len(medians), "lowest_us": min(medians), "highest_us": max(medians)}
    return [Reason("scatter_of_choices", fields)]


def _notes(joined: Joined, impl: ImplRecord | None, processes: int, waiting: Waiting | None) -> tuple[Reason, ...]:
    notes = [note for row in joined.rows for note in row.notes]
    if waiting is not None:
        notes.append(waiting.note)
    if impl is not None and impl.in_place:
        notes.append(Reason("in_place"))
    if impl is not None and impl.via == "autograd":
        notes.append(Reason("autograd"))
    choices = (Reason(TEXT, {"text": row.chosen}) if row.chosen else None for row in joined.rows)
    if chosen := joined.summed_up(choices):
        notes += [Reason("chosen", parts=[chosen]), *_scatter(joined)]
    notes += [row.kernels_note for row in joined.rows if row.kernels_note]
    if 0 < len(joined.timings) < processes:
        fields = {"timed": len(joined.timings), "processes": processes, "set_aside": len(joined.set_aside)}
        notes.append(Reason("some_set_aside" if joined.set_aside else "some_processes", fields))
    return tuple(dict.fromkeys(notes))
