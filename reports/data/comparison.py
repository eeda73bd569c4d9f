"""A results file as a comparison: pure, no text, no measuring. Every format writes this and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from harness.cases import NormCase
from harness.errors import UsageError
from harness.results.file import Results
from harness.results.joining import Joined, JoinedCase, band, by_case, doubt, ratio, same_traffic_add
from harness.results.schema import RANKED, Budget, EndRecord, Flush, RunRecord, SelfTestRecord
from harness.results.statistics import IncomparableError, Ratio, verdict
from reports.data.device_state import DeviceState, device_state
from reports.data.entries import Entry, Standing, Yardsticks, make_entry
from reports.data.summary import Summary, summarise

_ORDER: tuple[Standing, ...] = ("ranked", "unranked", "verified", "failed", "absent")


@dataclass(frozen=True)
class Lead:
    """The fastest ranked implementation of a case, by how much over the next, and whom it does not clearly beat."""

    impl: str
    runner_up: str | None
    ratio: Ratio | None
    tied_with: tuple[str, ...]


@dataclass(frozen=True)
class CaseComparison:
    """One case: the same-traffic add (median us), the A/A band (a log ratio), and the entries in order of standing.

    There is no lead where an entry is too fast to be ranked: those that rank are slower than it.
    """

    case: NormCase
    add_us: float | None
    aa_band: float | None
    voided: dict[str, int]
    entries: tuple[Entry, ...]
    lead: Lead | None

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


@dataclass(frozen=True)
class Comparison:
    """A whole results file; `unfinished` says what is missing from it, `timed` whether any row has a time.

    `budget` is the engine's own error by the worst of `selftests`, `state` what the device said of itself meanwhile.
    """

    run: RunRecord
    baseline: str
    timed: bool
    unfinished: str | None
    cases: tuple[CaseComparison, ...]
    summary: Summary
    budget: Budget | None
    selftests: tuple[SelfTestRecord, ...]
    state: DeviceState
    end: EndRecord | None


def compare(results: Results, baseline: str | None = None) -> Comparison:
    """Set every implementation beside the baseline (the run's own by default), case by case.

    Of several rows of one (case, implementation, role, process) the last counts, as a resumed run appends; those of
    several processes are one entry. Raises UsageError where the file has no implementation of the name asked for.
    """
    names = _names(results)
    if baseline is not None and baseline not in names:
        raise UsageError(f"no implementation {baseline!r} in these results; --baseline can be: {', '.join(names)}")
    base = baseline or results.run.settings.baseline
    cases = tuple(_compare_case(case, of, results, base) for case, of in by_case(results).items())
    return Comparison(
        run=results.run,
        baseline=base,
        timed=any(entry.median_us is not None for case in cases for entry in case.entries),
        unfinished=_unfinished(results),
        cases=cases,
        summary=summarise(cases, base),
        budget=results.budget,
        selftests=tuple(results.selftests),
        state=device_state(results.conditions),
        end=results.end,
    )


def _compare_case(case: NormCase, found: JoinedCase, results: Results, baseline: str) -> CaseComparison:
    run = results.run
    impls = {impl: joined for (impl, role), joined in found.items() if role == "impl"}
    add = same_traffic_add(found)
    add = add if add and is_rankable(add) else None
    aa = band(found, baseline)
    against = Yardsticks(
        groups=_common_groups(impls, baseline),
        baseline=impls.get(baseline),
        add=add,
        band=aa,
        datasheet_gbps=run.device.datasheet_gbps if case.device != "cpu" else None,
        budget=results.budget,
        processes=run.settings.processes,
    )
    records = {impl.name: impl for impl in run.implementations}
    entries = sorted((make_entry(joined, records.get(joined.impl), against) for joined in impls.values()), key=_place)
    ranked = [impls[entry.impl] for entry in entries if entry.standing == "ranked"]
    return CaseComparison(
        case=case,
        add_us=add.median_us if add else None,
        aa_band=aa,
        voided=_voided(found),
        entries=tuple(entries),
        lead=None if any(entry.too_short for entry in entries) else _lead(ranked, aa),
    )


def is_rankable(joined: Joined) -> bool:
    """Whether its times may stand in a comparison at all: it passed, and its samples are times of the device."""
    return joined.status in RANKED and doubt(joined) is None


def _place(entry: Entry) -> tuple[int, float, str]:
    return _ORDER.index(entry.standing), entry.median_us or 0.0, entry.impl


def _common_groups(impls: Mapping[str, Joined], baseline: str) -> frozenset[tuple[str, Flush]]:
    """The blocks in which a case is compared, a group a process: the baseline's, or most rows' where it has no time."""
    base = impls.get(baseline)
    if base is not None and is_rankable(base):
        return frozenset((timing.group, timing.flush) for timing in base.timings)
    groups: dict[int, Counter[tuple[str, Flush]]] = {}
    for row in (row for joined in impls.values() if is_rankable(joined) for row in joined.rows):
        if row.timing:
            groups.setdefault(row.process, Counter())[row.timing.group, row.timing.flush] += 1
    return frozenset(max(counted, key=counted.__getitem__) for counted in groups.values())


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


def _voided(found: JoinedCase) -> dict[str, int]:
    """Blocks left out, by cause; rows of a group share their blocks, so the largest count stands for the group."""
    groups: dict[tuple[str, str], int] = {}
    for timing in (row.timing for joined in found.values() for row in joined.rows if row.timing):
        for cause, count in timing.voided.items():
            groups[timing.group, cause] = max(groups.get((timing.group, cause), 0), count)
    voided: dict[str, int] = {}
    for (_, cause), count in groups.items():
        voided[cause] = voided.get(cause, 0) + count
    return voided


def _names(results: Results) -> list[str]:
    known = [impl.name for impl in results.run.implementations]
    return list(dict.fromkeys(known + [row.impl for row in results.rows if row.role == "impl"]))


def _unfinished(results: Results) -> str | None:
    if results.end is not None and results.end.interrupted:
        why = "the run was interrupted"
    elif results.end is None:
        why = "the run has not ended, or was cut short"
    elif results.cases_here < results.run.jobs:
        why = "the run ended before all its cases"
    else:
        return None
    return f"Unfinished: {results.cases_here} of {results.run.jobs} cases are here; {why}."
