"""One case of a results file compared: an entry for each implementation, best first, and the one that leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from pydantic import ConfigDict

from harness.analysis.checks import Checked, OtherBits, join_verifications
from harness.analysis.joining import Joined, JoinedCase, band, interleaved, ratio, same_traffic_add
from harness.analysis.statistics import IncomparableError, Ratio, SpeedVerdict, geomean, median_and_spread, verdict
from harness.cases import NormCase
from harness.cases.tensors import gradients_of
from harness.cases.traffic import moved_bytes
from harness.records.file import Results
from harness.records.reasons import TEXT, Reason
from harness.records.run_records import ImplRecord
from harness.records.schema import NOT_RUN, RANKED, Flush, Kernel, KernelTotals, Status, Timing, VoidBlocks

# ranked: passed, timed, comparable; unranked: passed and timed, but its time cannot be set beside the others';
# verified: passed, not timed; failed: ran and did not pass; absent: never ran here (missing, unsupported).
Standing = Literal["ranked", "unranked", "verified", "failed", "absent"]
STANDINGS: tuple[Standing, ...] = get_args(Standing)  # in the order of a table


@dataclass(frozen=True)
class Waiting:
    """The samples of all processes, and how many of them ended only after the kernel beside had ended."""

    waited: int
    samples: int

    @property
    def usual(self) -> bool:
        """Whether at least half of the samples waited, so that a typical time is that of the kernel beside."""
        return 2 * self.waited >= self.samples

    @property
    def note(self) -> Reason:
        """The counts as a note on a row."""
        fields = {"waited": self.waited, "samples": self.samples}
        return Reason("usually_waits" if self.usual else "waits_sometimes", fields)


@dataclass(frozen=True)
class Entry:
    """One implementation on one case, over all processes that measured it.

    `median_us` (the median of the medians of the processes) and `spread` (relative, of all samples) exist for ranked
    and unranked entries; speedup, verdict and bandwidth for ranked ones only, and speedup and verdict not for the
    baseline itself. `kernels` and `kernel_totals` are of the first process that has them, None where they are unknown.
    `wrong_us` is the time of a wrong entry, which is shown and compared with nothing.
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
    wrong_us: float | None = None

    @property
    def other_bits(self) -> OtherBits | None:
        """Where the bits of a result that passed differ: from run to run, or only in a new process; else None."""
        if self.status != "nondeterministic":
            return None
        return "in a new process" if self.checked.moved and not self.checked.differing else "in one process"

    @property
    def usually_waits(self) -> bool:
        """Whether at least half of the samples waited for the end of the kernel beside."""
        return self.waiting is not None and self.waiting.usual


@dataclass(frozen=True)
class Lead:
    """The fastest ranked implementation of a case, its ratio over each other, fastest first, and the A/A band."""

    impl: str
    ratios: Mapping[str, Ratio | None]
    band: float | None

    @property
    def ratio(self) -> Ratio | None:
        """The ratio over the next one."""
        return next(iter(self.ratios.values()), None)

    @property
    def tied_with(self) -> tuple[str, ...]:
        """Those that it cannot be told from."""
        return self.tied(self.band)

    def tied(self, band: float | None) -> tuple[str, ...]:
        """Those that it does not lead by more than a band, a log ratio; without one all."""
        return tuple(
            impl
            for impl, ratio in self.ratios.items()
            if ratio is None or band is None or verdict(ratio, band) != "faster"
        )


@dataclass(frozen=True)
class CaseComparison:
    """One case: the same-traffic add (median us), the A/A band (a log ratio), and the entries in order of standing.

    `copy_us` is the time to move its bytes at the rate of a large copy. `dx_stays` says that dx fits into the last
    cache level, and may stay there. `interference` says why nothing here is called faster or slower, or is None. There
    is no lead where an entry is too fast to be ranked, or its own samples show interference, because it may be faster
    than those that rank. The times of the processes `set_aside` do not count. `joined` has the rows themselves.
    """

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)  # for its JSON schema: `joined` is no part of it

    case: NormCase
    add_us: float | None
    copy_us: float | None
    dx_stays: bool
    aa_band: float | None
    interference: Reason | None
    voided: tuple[VoidBlocks, ...]
    entries: tuple[Entry, ...]
    lead: Lead | None
    joined: JoinedCase
    set_aside: tuple[int, ...] = ()

    @property
    def ranked(self) -> tuple[Entry, ...]:
        """The entries that compete, fastest first."""
        return self.of("ranked")

    @property
    def fastest(self) -> Entry | None:
        """The entry that leads, if one does."""
        return self.entry(self.lead.impl) if self.lead else None

    def lead_among(self, impls: Collection[str]) -> Lead | None:
        """The lead among these implementations alone; None where the case has none."""
        if self.lead is None or all(entry.impl in impls for entry in self.ranked):
            return self.lead
        return _lead([self.joined.impls[entry.impl] for entry in self.ranked if entry.impl in impls], self.aa_band)

    def of(self, *standings: Standing) -> tuple[Entry, ...]:
        """The entries of these standings, in order."""
        return tuple(entry for entry in self.entries if entry.standing in standings)

    def entry(self, impl: str) -> Entry | None:
        """The entry of an implementation, or None where the case has no row of it."""
        return next((entry for entry in self.entries if entry.impl == impl), None)


class _Against(NamedTuple):
    """What the entries of a case are set against: `groups` are those in which it is compared, with their flush."""

    case: JoinedCase
    groups: frozenset[tuple[str, Flush]]
    baseline: Joined | None
    add: Joined | None
    band: float | None
    datasheet_gbps: float | None
    copy_gbps: float | None
    processes: int
    moves: bool


def compare_case(
    case: NormCase, joined_case: JoinedCase, results: Results, baseline: str, moves: bool = True
) -> CaseComparison:
    """Compare every implementation of a case with the baseline.

    No bandwidth is told unless a sample `moves` the bytes of a backward alone.
    """
    run, impls = results.run, joined_case.impls
    add = same_traffic_add(joined_case)
    against = _Against(
        case=joined_case,
        groups=_common_groups(impls, baseline),
        baseline=impls.get(baseline),
        add=add if add and add.is_rankable else None,
        band=band(joined_case, baseline),
        datasheet_gbps=run.device.datasheet_gbps if case.device != "cpu" else None,
        copy_gbps=results.budget.copy_gbps if results.budget else None,
        processes=run.settings.processes,
        moves=moves,
    )
    records = {impl.name: impl for impl in run.implementations}
    entries = [make_entry(joined, records.get(joined.impl), against) for joined in impls.values()]
    entries.sort(key=lambda entry: (STANDINGS.index(entry.standing), entry.median_us or 0.0, entry.impl))
    ranked = [impls[entry.impl] for entry in entries if entry.standing == "ranked"]
    return CaseComparison(
        case=case,
        add_us=against.add.median_us if against.add else None,
        copy_us=moved_bytes(case) / against.copy_gbps / 1e3 if against.copy_gbps and moves else None,
        dx_stays=gradients_of(case)[0].size_bytes(case) <= run.device.last_level_bytes,
        aa_band=against.band,
        interference=joined_case.interference,
        voided=_voided(joined_case),
        entries=tuple(entries),
        lead=None if any(entry.too_short or entry.disturbed for entry in entries) else _lead(ranked, against.band),
        joined=joined_case,
        set_aside=tuple(sorted(joined_case.set_aside)),
    )


def bandwidth_gbps(case: NormCase, us: float | None) -> float | None:
    """The bytes that the case must move over a time, in GB/s."""
    return moved_bytes(case) / us / 1e3 if us else None


def make_entry(joined: Joined, impl: ImplRecord | None, against: _Against) -> Entry:
    """The entry of a result, with only the figures that its status and its timings allow."""
    short, disturbed = joined.too_short, against.case.no_verdict_reason(joined.impl)
    standing, why = _standing(joined, joined.doubt or _apart(joined, against.groups) or short or disturbed)
    timings, median = ((), None) if standing not in ("ranked", "unranked") else (joined.timings, joined.median_us)
    ranked, unranked = standing == "ranked", standing == "unranked"
    speedup = _ratio(against.baseline, joined) if ranked and joined is not against.baseline else None
    bandwidth = bandwidth_gbps(joined.case, median if ranked and against.moves else None)
    waited = sum(timing.waited for timing in joined.timings)
    waiting = Waiting(waited, sum(len(timing.samples_us) for timing in joined.timings)) if waited else None
    peaks = [row.peak_extra_bytes for row in joined.rows if row.peak_extra_bytes is not None]
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
        percent_of_add=_percent_of_add(against.add, joined) if bandwidth else None,
        percent_of_copy=100 * bandwidth / against.copy_gbps if bandwidth and against.copy_gbps else None,
        percent_of_datasheet=100 * bandwidth / against.datasheet_gbps if bandwidth and against.datasheet_gbps else None,
        checked=join_verifications([row.verification for row in joined.rows if row.verification]),
        peak_extra_bytes=max(peaks, default=None),
        kernels=tuple(profiled.kernels or ()) if profiled else None,
        kernel_totals=profiled.kernel_totals if profiled else None,
        notes=_notes(joined, impl, against.processes, waiting),
        waiting=waiting,
        prepare_s=next((row.prepare_s for row in joined.rows if row.prepare_s is not None), None),
        via=impl.via if impl else "kernel",
        in_place=impl.in_place if impl else False,
        proven=all(timing.proven for timing in joined.timings),
        too_short=unranked and short is not None,
        only_too_short=unranked and why == short and not disturbed,
        disturbed=unranked and disturbed is not None,
        wrong_us=joined.median_us if joined.status == "wrong" else None,
    )


def _standing(joined: Joined, why_not: Reason | None) -> tuple[Standing, Reason | None]:
    if joined.status not in RANKED:
        return ("absent" if joined.status in NOT_RUN else "failed"), joined.reason
    if not joined.timings:
        return "verified", joined.summed_up(row.untimed for row in joined.rows)
    return ("unranked", why_not) if why_not else ("ranked", joined.reason)


def _apart(joined: Joined, groups: frozenset[tuple[str, Flush]]) -> Reason | None:
    """That processes timed it in other groups of blocks than the case is compared in."""
    timings = (joined.timing_by_process.get(row.process) for row in joined.rows)
    return joined.summed_up(
        Reason("timed_apart", {"group": timing.group, "flush": timing.flush})
        if timing and (timing.group, timing.flush) not in groups
        else None
        for timing in timings
    )


def _spread(timings: Sequence[Timing], median_us: float | None) -> float | None:
    """Half the inter-quartile range of the samples of all processes, over the median."""
    if not median_us:
        return None
    middle, spread = median_and_spread([sample for timing in timings for sample in timing.samples_us])
    return spread * (middle / median_us)


def _percent_of_add(add: Joined | None, joined: Joined) -> float | None:
    """The time of the same-traffic add over that of a result, in percent, where they share blocks and flush."""
    quotients = [pair.ratio_of_medians for pair in interleaved(add, joined)] if add else []
    return 100 * geomean(quotients) if quotients else None


def _notes(joined: Joined, impl: ImplRecord | None, processes: int, waiting: Waiting | None) -> tuple[Reason, ...]:
    notes = [note for row in joined.rows for note in row.notes]
    if waiting is not None:
        notes.append(waiting.note)
    if impl is not None and impl.in_place:
        notes.append(Reason("in_place"))
    if impl is not None and impl.via == "autograd":
        notes.append(Reason("autograd"))
    if chosen := joined.summed_up(Reason(TEXT, {"text": row.chosen}) if row.chosen else None for row in joined.rows):
        notes.append(Reason("chosen", parts=[chosen]))
        if len(medians := joined.medians_us) > 1:  # each process chose anew
            fields = {"processes": len(medians), "lowest_us": min(medians), "highest_us": max(medians)}
            notes.append(Reason("scatter_of_choices", fields))
    notes += [row.kernels_note for row in joined.rows if row.kernels_note]
    if 0 < (timed := len(joined.timings)) < processes:
        fields = {"timed": timed, "processes": processes, "set_aside": len(joined.set_aside)}
        notes.append(Reason("some_set_aside" if joined.set_aside else "some_processes", fields))
    return tuple(dict.fromkeys(notes))


def _common_groups(impls: Mapping[str, Joined], baseline: str) -> frozenset[tuple[str, Flush]]:
    """The groups of blocks in which a case is compared: the baseline's, or those of most rows where it has no time."""
    base = impls.get(baseline)
    if base is not None and base.is_rankable:
        return frozenset((timing.group, timing.flush) for timing in base.timings)
    groups: dict[int, Counter[tuple[str, Flush]]] = {}
    for joined in (joined for joined in impls.values() if joined.is_rankable):
        for process, timing in joined.timing_by_process.items():
            groups.setdefault(process, Counter())[timing.group, timing.flush] += 1
    return frozenset(max(counts, key=counts.__getitem__) for counts in groups.values())


def _lead(ranked: Sequence[Joined], aa: float | None) -> Lead | None:
    if not ranked:
        return None
    first, *others = ranked
    return Lead(first.impl, {other.impl: _ratio(other, first) for other in others}, aa)


def _ratio(base: Joined | None, other: Joined) -> Ratio | None:
    with suppress(IncomparableError):
        return ratio(base, other)
    return None


def _voided(joined_case: JoinedCase) -> tuple[VoidBlocks, ...]:
    """The number of voided blocks by cause; the rows of a group share blocks, so its largest count is taken."""
    groups: dict[tuple[str, Reason], int] = {}
    for timing in (row.timing for joined in joined_case.values() for row in joined.rows if row.timing):
        for void in timing.voided:
            groups[timing.group, void.cause] = max(groups.get((timing.group, void.cause), 0), void.blocks)
    voided: Counter[Reason] = Counter()
    for (_, cause), count in groups.items():
        voided[cause] += count
    return tuple(VoidBlocks(cause=cause, blocks=blocks) for cause, blocks in voided.items())
