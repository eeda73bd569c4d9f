"""All cases summed up: geometric means, wins, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.checks import OtherBits
from harness.analysis.statistics import geomean
from harness.cases import Norm
from harness.records.reasons import Reason, kind
from harness.records.schema import Status


@dataclass(frozen=True)
class Geomean:
    """The geometric mean speedup of one implementation over the baseline, for one norm.

    `value`, with the `smallest` and `largest` behind it, is over the `cases` that it ranks in, of `total`; `common` is
    over the `common_cases` in which all of the norm's implementations rank. Only equal sets of cases may be compared.
    Cases in which it waits for the end of a kernel beside are left out: there its time is how long that kernel ran.
    """

    norm: Norm
    impl: str
    value: float
    smallest: float
    largest: float
    cases: int
    total: int
    common: float | None
    common_cases: int
    other_bits: Mapping[OtherBits, int]


@dataclass(frozen=True)
class Wins:
    """The cases (by key) in which one implementation is fastest alone, or in a tie for fastest."""

    impl: str
    alone: tuple[str, ...]
    tied: tuple[str, ...]
    other_bits: Mapping[OtherBits, int]


@dataclass(frozen=True)
class FailedCases:
    """An implementation that ran and did not pass, with the cases (by key) in which it did so for this reason.

    `reason` is that of the first case; those of the others may have other numbers, and then `varies`.
    """

    impl: str
    status: Status
    reason: Reason
    varies: bool
    cases: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """All cases together."""

    cases: int
    geomeans: tuple[Geomean, ...]
    wins: tuple[Wins, ...]
    failures: tuple[FailedCases, ...]


def summarise(cases: Sequence[CaseComparison], baseline: str) -> Summary:
    """Reduce cases to a summary; every part says how many cases it covers."""
    norms: dict[Norm, None] = dict.fromkeys(case.case.norm for case in cases)
    return Summary(
        cases=len(cases),
        geomeans=tuple(
            mean for norm in norms for mean in _geomeans([c for c in cases if c.case.norm == norm], norm, baseline)
        ),
        wins=_wins(cases),
        failures=_failures(cases),
    )


def fastest_of_each(means: Sequence[Geomean], families: Mapping[str, str]) -> list[Geomean]:
    """The fastest variant of each family of implementations, for each norm; `families` has that of each name."""
    fastest: dict[tuple[Norm, str], Geomean] = {}
    for mean in means:  # the best of a norm come first
        fastest.setdefault((mean.norm, families.get(mean.impl, mean.impl)), mean)
    return list(fastest.values())


def _geomeans(cases: Sequence[CaseComparison], norm: Norm, baseline: str) -> list[Geomean]:
    speedups: dict[str, dict[str, float]] = {}
    counted: dict[str, list[Entry]] = {}
    for case in cases:
        for entry in (entry for entry in case.ranked if not entry.usually_waits):
            value = 1.0 if entry.impl == baseline else entry.speedup.value if entry.speedup else None
            if value is not None:
                speedups.setdefault(entry.impl, {})[case.case.key] = value
                counted.setdefault(entry.impl, []).append(entry)
    common = set[str].intersection(*map(set[str], speedups.values())) if speedups else set[str]()
    means = [
        Geomean(
            norm=norm,
            impl=impl,
            value=geomean(list(by_case.values())),
            smallest=min(by_case.values()),
            largest=max(by_case.values()),
            cases=len(by_case),
            total=len(cases),
            common=geomean([by_case[key] for key in common]) if common else None,
            common_cases=len(common),
            other_bits=_other_bits(counted[impl]),
        )
        for impl, by_case in speedups.items()
    ]
    return sorted(means, key=lambda mean: (-mean.value, mean.impl))


def _wins(cases: Sequence[CaseComparison]) -> tuple[Wins, ...]:
    alone: dict[str, list[str]] = {}
    tied: dict[str, list[str]] = {}
    won: dict[str, list[Entry]] = {}
    for case in cases:
        leaders = (case.lead.impl, *case.lead.tied_with) if case.lead else ()
        for entry in (entry for entry in case.ranked if entry.impl in leaders):
            (tied if len(leaders) > 1 else alone).setdefault(entry.impl, []).append(case.case.key)
            won.setdefault(entry.impl, []).append(entry)
    wins = [
        Wins(impl, tuple(alone.get(impl, ())), tuple(tied.get(impl, ())), _other_bits(entries))
        for impl, entries in won.items()
    ]
    return tuple(sorted(wins, key=lambda win: (-len(win.alone), -len(win.tied), win.impl)))


def _other_bits(entries: Sequence[Entry]) -> dict[OtherBits, int]:
    return dict(Counter(entry.other_bits for entry in entries if entry.other_bits))


def _failures(cases: Sequence[CaseComparison]) -> tuple[FailedCases, ...]:
    failures: dict[tuple[str, Status, object], dict[str, Reason]] = {}
    for case in cases:
        for entry in case.failed:
            reason = entry.reason or Reason("no_reason")
            key = entry.impl, entry.status, kind(reason)
            failures.setdefault(key, {})[case.case.key] = reason
    return tuple(
        FailedCases(impl, status, next(iter(reasons.values())), len(set(reasons.values())) > 1, tuple(reasons))
        for (impl, status, _), reasons in failures.items()
    )
