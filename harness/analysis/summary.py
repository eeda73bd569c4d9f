"""All cases summed up: geometric means, wins, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.checks import OtherBits
from harness.analysis.statistics import geomean
from harness.cases import Norm
from harness.grouping import grouped
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
    norms = grouped((case.case.norm, case) for case in cases)
    geomeans = tuple(mean for norm, of_norm in norms.items() for mean in _geomeans(of_norm, norm, baseline))
    return Summary(len(cases), geomeans, _wins(cases), _failures(cases))


def _geomeans(cases: Sequence[CaseComparison], norm: Norm, baseline: str) -> list[Geomean]:
    counted: dict[str, dict[str, tuple[float, Entry]]] = {}  # by implementation and case
    for case in cases:
        for entry in (entry for entry in case.ranked if not entry.usually_waits):
            if entry.impl == baseline or entry.speedup:
                value = entry.speedup.value if entry.speedup else 1.0
                counted.setdefault(entry.impl, {})[case.case.key] = value, entry
    common = set[str].intersection(*map(set[str], counted.values())) if counted else set[str]()
    means: list[Geomean] = []
    for impl, by_case in counted.items():
        values = [value for value, _ in by_case.values()]
        mean = Geomean(
            norm=norm,
            impl=impl,
            value=geomean(values),
            smallest=min(values),
            largest=max(values),
            cases=len(values),
            total=len(cases),
            common=geomean([by_case[key][0] for key in common]) if common else None,
            common_cases=len(common),
            other_bits=_other_bits(entry for _, entry in by_case.values()),
        )
        means.append(mean)
    return sorted(means, key=lambda mean: (-mean.value, mean.impl))


def _wins(cases: Sequence[CaseComparison]) -> tuple[Wins, ...]:
    won: dict[str, list[tuple[str, bool, Entry]]] = {}  # the case, and whether alone
    for case in cases:
        leaders = (case.lead.impl, *case.lead.tied_with) if case.lead else ()
        for entry in (entry for entry in case.ranked if entry.impl in leaders):
            won.setdefault(entry.impl, []).append((case.case.key, len(leaders) == 1, entry))
    wins: list[Wins] = []
    for impl, of_impl in won.items():
        alone, tied = (tuple(key for key, is_alone, _ in of_impl if is_alone == asked) for asked in (True, False))
        wins.append(Wins(impl, alone, tied, _other_bits(entry for *_, entry in of_impl)))
    return tuple(sorted(wins, key=lambda win: (-len(win.alone), -len(win.tied), win.impl)))


def _other_bits(entries: Iterable[Entry]) -> dict[OtherBits, int]:
    return dict(Counter(entry.other_bits for entry in entries if entry.other_bits))


def _failures(cases: Sequence[CaseComparison]) -> tuple[FailedCases, ...]:
    failures: dict[tuple[str, Status, object], dict[str, Reason]] = {}
    for case in cases:
        for entry in case.of("failed"):
            reason = entry.reason or Reason("no_reason")
            failures.setdefault((entry.impl, entry.status, kind(reason)), {})[case.case.key] = reason
    return tuple(
        FailedCases(impl, status, next(iter(reasons.values())), len(set(reasons.values())) > 1, tuple(reasons))
        for (impl, status, _), reasons in failures.items()
    )
