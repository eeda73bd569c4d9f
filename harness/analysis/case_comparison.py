"""One case of a results file as a comparison: its implementations, best first, and the one that leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from harness.analysis.entries import Entry, Standing, Yardsticks, make_entry
from harness.analysis.joining import Joined, JoinedCase, band, ratio, same_traffic_add
from harness.analysis.statistics import IncomparableError, Ratio, verdict
from harness.cases import NormCase
from harness.cases.tensors import gradients_of
from harness.cases.traffic import moved_bytes
from harness.records.file import Results
from harness.records.reasons import Reason
from harness.records.schema import RANKED, Flush

_ORDER: tuple[Standing, ...] = ("ranked", "unranked", "verified", "failed", "absent")


@dataclass(frozen=True)
class Lead:
    """The fastest ranked implementation of a case, its ratio over the next one, and those it is tied with."""

    impl: str
    runner_up: str | None
    ratio: Ratio | None
    tied_with: tuple[str, ...]


@dataclass(frozen=True)
class CaseComparison:
    """One case: the same-traffic add (median us), the A/A band (a log ratio), and the entries in order of standing.

    `copy_us` is the time to move its bytes at the rate of a large copy. `dx_stays` says that dx fits into the last
    cache level, and may stay there. `interference` says why nothing here is called faster or slower, or is None. There
    is no lead where an entry is too fast to be ranked, or its own samples show interference, because it may be faster
    than those that rank. The times of the processes `set_aside` do not count. `joined` has the rows themselves.
    """

    case: NormCase
    add_us: float | None
    copy_us: float | None
    dx_stays: bool
    aa_band: float | None
    interference: Reason | None
    voided: dict[Reason, int]
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

    @property
    def failed(self) -> tuple[Entry, ...]:
        """The entries that ran and did not pass."""
        return self.of("failed")

    def of(self, *standings: Standing) -> tuple[Entry, ...]:
        """The entries of these standings, in order."""
        return tuple(entry for entry in self.entries if entry.standing in standings)

    def entry(self, impl: str) -> Entry | None:
        """The entry of an implementation, or None where the case has no row of it."""
        return next((entry for entry in self.entries if entry.impl == impl), None)


def compare_case(case: NormCase, joined_case: JoinedCase, results: Results, baseline: str) -> CaseComparison:
    """Compare every implementation of a case with the baseline."""
    run = results.run
    impls = {impl: joined for (impl, role), joined in joined_case.items() if role == "impl"}
    add = same_traffic_add(joined_case)
    add = add if add and is_rankable(add) else None
    aa = band(joined_case, baseline)
    copy_gbps = results.budget.copy_gbps if results.budget else None
    against = Yardsticks(
        groups=_common_groups(impls, baseline),
        baseline=impls.get(baseline),
        add=add,
        band=aa,
        datasheet_gbps=run.device.datasheet_gbps if case.device != "cpu" else None,
        copy_gbps=copy_gbps,
        processes=run.settings.processes,
        evidence=joined_case.no_verdict_reason,
    )
    records = {impl.name: impl for impl in run.implementations}
    entries = sorted((make_entry(joined, records.get(joined.impl), against) for joined in impls.values()), key=_place)
    ranked = [impls[entry.impl] for entry in entries if entry.standing == "ranked"]
    return CaseComparison(
        case=case,
        add_us=add.median_us if add else None,
        copy_us=moved_bytes(case) / copy_gbps / 1e3 if copy_gbps else None,
        dx_stays=gradients_of(case)[0].size_bytes(case) <= run.device.last_level_bytes,
        aa_band=aa,
        interference=joined_case.interference,
        voided=_voided(joined_case),
        entries=tuple(entries),
        lead=None if any(entry.too_short or entry.disturbed for entry in entries) else _lead(ranked, aa),
        joined=joined_case,
        set_aside=tuple(sorted(joined_case.set_aside)),
    )


def is_rankable(joined: Joined) -> bool:
    """Whether a result may be ranked: it passed, and its times are without doubt in every process."""
    return joined.status in RANKED and joined.doubt is None


def _place(entry: Entry) -> tuple[int, float, str]:
    return _ORDER.index(entry.standing), entry.median_us or 0.0, entry.impl


def _common_groups(impls: Mapping[str, Joined], baseline: str) -> frozenset[tuple[str, Flush]]:
    """The groups of blocks in which a case is compared: the baseline's, or those of most rows where it has no time."""
    base = impls.get(baseline)
    if base is not None and is_rankable(base):
        return frozenset((timing.group, timing.flush) for timing in base.timings)
    groups: dict[int, Counter[tuple[str, Flush]]] = {}
    for joined in filter(is_rankable, impls.values()):
        for process, timing in joined.timing_by_process.items():
            groups.setdefault(process, Counter())[timing.group, timing.flush] += 1
    return frozenset(max(counts, key=counts.__getitem__) for counts in groups.values())


def _lead(ranked: Sequence[Joined], aa: float | None) -> Lead | None:
    if not ranked:
        return None
    first, *others = ranked
    ratios = {other.impl: _ratio(other, first) for other in others}
    beaten = {impl for impl, ratio in ratios.items() if ratio and aa is not None and verdict(ratio, aa) == "faster"}
    runner_up = others[0].impl if others else None
    return Lead(
        impl=first.impl,
        runner_up=runner_up,
        ratio=ratios[runner_up] if runner_up else None,
        tied_with=tuple(impl for impl in ratios if impl not in beaten),
    )


def _ratio(base: Joined, other: Joined) -> Ratio | None:
    with suppress(IncomparableError):
        return ratio(base, other)
    return None


def _voided(joined_case: JoinedCase) -> dict[Reason, int]:
    """The number of voided blocks by cause; the rows of a group share blocks, so its largest count is taken."""
    groups: dict[tuple[str, Reason], int] = {}
    for timing in (row.timing for joined in joined_case.values() for row in joined.rows if row.timing):
        for void in timing.voided:
            groups[timing.group, void.cause] = max(groups.get((timing.group, void.cause), 0), void.blocks)
    voided: dict[Reason, int] = {}
    for (_, cause), count in groups.items():
        voided[cause] = voided.get(cause, 0) + count
    return voided
