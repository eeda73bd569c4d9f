"""A results file as a comparison: pure, no text, no measuring. Every format writes this and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from harness.cases import NormCase
from harness.errors import UsageError
from harness.results import Flush, Results, RowRecord, RunRecord
from harness.stats import IncomparableError, Ratio, aa_band, median_and_spread, timing_speedup, verdict
from reports.entries import Entry, Standing, Yardsticks, is_rankable, make_entry, usable_timing
from reports.summary import Summary, summarise

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
    """One case: the same-traffic add (median us), the A/A band (a log ratio), and the entries in order of standing."""

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
    """A whole results file; `unfinished` says what is missing from it, `timed` whether any row has a time."""

    run: RunRecord
    baseline: str
    timed: bool
    unfinished: str | None
    cases: tuple[CaseComparison, ...]
    summary: Summary


def compare(results: Results, baseline: str | None = None) -> Comparison:
    """Set every implementation beside the baseline (the run's own by default), case by case.

    Of several rows of one (case, implementation, role) the last counts, as a resumed run appends. Raises UsageError
    where the file has no implementation of the name asked for.
    """
    names = _names(results)
    if baseline is not None and baseline not in names:
        raise UsageError(f"no implementation {baseline!r} in these results; --baseline can be: {', '.join(names)}")
    base = baseline or results.run.settings.baseline
    rows: dict[NormCase, list[RowRecord]] = {}
    for row in results.rows:
        rows.setdefault(row.case, []).append(row)
    cases = tuple(_compare_case(case, of, results.run, base) for case, of in rows.items())
    return Comparison(
        run=results.run,
        baseline=base,
        timed=any(entry.median_us is not None for case in cases for entry in case.entries),
        unfinished=_unfinished(results, len(cases)),
        cases=cases,
        summary=summarise(cases, base),
    )


def _compare_case(case: NormCase, rows: list[RowRecord], run: RunRecord, baseline: str) -> CaseComparison:
    latest = {(row.impl, row.role): row for row in rows}
    impls = {impl: row for (impl, role), row in latest.items() if role == "impl"}
    add = usable_timing(next((row for row in latest.values() if row.role == "floor"), None))
    again = next((row for row in latest.values() if row.role == "again"), None)
    band = _band(impls.get(again.impl, impls.get(run.settings.baseline)) if again else None, again)
    against = Yardsticks(
        group=_common_group(impls, baseline),
        baseline=impls.get(baseline),
        add=add,
        band=band,
        datasheet_gbps=run.device.datasheet_gbps if case.device != "cpu" else None,
    )
    records = {impl.name: impl for impl in run.implementations}
    entries = sorted((make_entry(row, records.get(row.impl), against) for row in impls.values()), key=_place)
    return CaseComparison(
        case=case,
        add_us=median_and_spread(add.samples_us)[0] if add else None,
        aa_band=band,
        voided=_voided(rows),
        entries=tuple(entries),
        lead=_lead([impls[entry.impl] for entry in entries if entry.standing == "ranked"], band),
    )


def _place(entry: Entry) -> tuple[int, float, str]:
    return _ORDER.index(entry.standing), entry.median_us or 0.0, entry.impl


def _common_group(impls: dict[str, RowRecord], baseline: str) -> tuple[str, Flush] | None:
    """The blocks in which a case is compared: the baseline's, or those of most rows where it has no time."""
    base = usable_timing(impls.get(baseline))
    if base is not None:
        return base.group, base.flush
    timings = [row.timing for row in impls.values() if is_rankable(row) and row.timing]
    groups: Counter[tuple[str, Flush]] = Counter((timing.group, timing.flush) for timing in timings)
    return max(groups, key=groups.__getitem__) if groups else None


def _band(first: RowRecord | None, again: RowRecord | None) -> float | None:
    ratio = _ratio(first, again)
    return aa_band(ratio) if ratio else None


def _lead(ranked: list[RowRecord], band: float | None) -> Lead | None:
    if not ranked:
        return None
    first, *others = ranked
    ratios = {other.impl: _ratio(other, first) for other in others}
    beaten = {impl for impl, ratio in ratios.items() if ratio and band is not None and verdict(ratio, band) == "faster"}
    runner_up = others[0].impl if others else None
    return Lead(
        impl=first.impl,
        runner_up=runner_up,
        ratio=ratios[runner_up] if runner_up else None,
        tied_with=tuple(impl for impl in ratios if impl not in beaten),
    )


def _ratio(base: RowRecord | None, other: RowRecord | None) -> Ratio | None:
    timings = usable_timing(base), usable_timing(other)
    if timings[0] is None or timings[1] is None:
        return None
    try:
        return timing_speedup(timings[0], timings[1])
    except IncomparableError:
        return None


def _voided(rows: list[RowRecord]) -> dict[str, int]:
    """Blocks left out, by cause; rows of a group share their blocks, so the largest count stands for the case."""
    voided: dict[str, int] = {}
    for row in rows:
        for cause, count in (row.timing.voided if row.timing else {}).items():
            voided[cause] = max(voided.get(cause, 0), count)
    return voided


def _names(results: Results) -> list[str]:
    known = [impl.name for impl in results.run.implementations]
    return list(dict.fromkeys(known + [row.impl for row in results.rows if row.role == "impl"]))


def _unfinished(results: Results, cases: int) -> str | None:
    if results.end is not None and results.end.interrupted:
        why = "the run was interrupted"
    elif results.end is None:
        why = "the run has not ended, or was cut short"
    elif cases < results.run.jobs:
        why = "the run ended before all its cases"
    else:
        return None
    return f"Unfinished: {cases} of {results.run.jobs} cases are here; {why}."
