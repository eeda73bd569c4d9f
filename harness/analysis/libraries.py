"""Libraries compared: of each its default, and the best of its variants, chosen in other processes than it is timed in.

The fastest of several variants is partly the luckiest, so in each process that one counts which is the fastest in all
others; a run of one process has no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import mean, median

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.joining import interleaved
from harness.analysis.pairing import Paired, speedups
from harness.analysis.statistics import Ratio, across_processes, geomean
from harness.cases import Norm
from harness.cases.unfused import WITH_TORCH
from harness.grouping import grouped
from harness.records.run_records import ImplRecord


@dataclass(frozen=True)
class Library:
    """One library of a run: its rows, the default first; `lacking` those by which it may be faster and which were not
    run, None where the file does not say; why it is `outside` what it was made for; and its versions.
    """

    name: str
    variants: tuple[str, ...]
    lacking: tuple[str, ...] | None
    outside: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Mean:
    """A geometric mean speedup over the baseline, its smallest and largest, over so many of the norm's cases."""

    value: float
    smallest: float
    largest: float
    cases: int
    total: int


@dataclass(frozen=True)
class Standing:
    """A library on one norm: its default and its best variant, None where they rank nowhere.

    `chosen` counts the cases in which a variant was the best in most processes. `first` and `tied` are the cases in
    which it is ahead of every row of every other library, or not to be told from one; None outside the competition.
    """

    library: Library
    norm: Norm
    default: Mean | None
    best: Mean | None
    chosen: Counter[str]
    first: int | None
    tied: int | None


def libraries(comparison: Comparison) -> list[Library]:
    """The libraries of a run; the two revisions of a `compare` are one each."""
    impls = comparison.run.implementations
    of_library = grouped((impl.name if comparison.run.sides else impl.family, impl) for impl in impls)
    return [_library(name, impls) for name, impls in of_library.items()]


def _library(name: str, impls: Sequence[ImplRecord]) -> Library:
    run = {impl.name.replace("@", "-") for impl in impls if not impl.missing}  # NAME@tuned stands for NAME-tuned too
    declared = [impl.for_speed for impl in impls if not impl.name.endswith(WITH_TORCH)]
    wanted = dict.fromkeys(each for names in declared for each in names or ())
    lacking = None if None in declared else tuple(each for each in wanted if each.replace("@", "-") not in run)
    versions = {library: version for impl in impls for library, version in impl.libraries.items()}
    outside = next((impl.outside for impl in impls if impl.outside), "")
    return Library(name, tuple(impl.name for impl in impls), lacking, outside, versions)


def competing(comparison: Comparison) -> set[str]:
    """The rows of libraries that are not run outside what they were made for."""
    return {name for each in libraries(comparison) if not each.outside for name in each.variants}


def unmeasured(comparison: Comparison) -> list[str] | None:
    """The rows by which a library with a time may be faster and which were not run; None where the file is silent.

    While there are any, nothing is called the fastest.
    """
    timed = {entry.impl for case in comparison.cases for entry in case.of("ranked", "unranked")}
    ran = [each for each in libraries(comparison) if not each.outside and timed.intersection(each.variants)]
    if any(each.lacking is None for each in ran):
        return None
    return [name for each in ran for name in each.lacking or ()]


@lru_cache(maxsize=1)  # several parts of a report take it
def standings(comparison: Comparison) -> list[Standing]:
    """Every library that ranks in any case, norm by norm, the best first."""
    norms = grouped((case.case.norm, case) for case in comparison.cases)
    known, among = libraries(comparison), competing(comparison)
    found: list[Standing] = []
    for norm, cases in norms.items():
        leads = [case.lead_among(among) for case in cases]
        leaders = [{lead.impl, *lead.tied_with} if lead else set[str]() for lead in leads]
        found += [_standing(each, cases, leaders, norm, comparison.baseline) for each in known]
    return sorted((each for each in found if each.best), key=lambda each: -each.best.value if each.best else 0.0)


def budget(comparison: Comparison, impl: str) -> tuple[int, float | None]:
    """What finding the configuration of a row took: how many `tune` tried, and the median seconds to prepare a case."""
    entries = [entry for case in comparison.cases if (entry := case.entry(impl))]
    counts = [note.fields.get("tried") for entry in entries for note in entry.notes]
    tried = [count for count in counts if isinstance(count, int)]
    seconds = [entry.prepare_s for entry in entries if entry.prepare_s is not None]
    return max(tried, default=0), median(seconds) if seconds else None


def _standing(
    library: Library, cases: Sequence[CaseComparison], leaders: Sequence[Collection[str]], norm: Norm, baseline: str
) -> Standing:
    defaults: list[float] = []
    bests: list[float] = []
    chosen: Counter[str] = Counter()
    for case in cases:
        if default := best_variant(case, library.variants[:1], baseline):
            defaults.append(default[1].value)
        if best := best_variant(case, library.variants, baseline):
            bests.append(best[1].value)
            chosen[best[0]] += 1
    in_front = [each for each in leaders if not set(library.variants).isdisjoint(each)]
    first = sum(set(library.variants).issuperset(each) for each in in_front)
    places = (None, None) if library.outside else (first, len(in_front) - first)
    return Standing(library, norm, _mean(defaults, len(cases)), _mean(bests, len(cases)), chosen, *places)


def best_variant(case: CaseComparison, variants: Collection[str], baseline: str) -> tuple[str, Ratio] | None:
    """The variant that is the best in most processes, and the speedup of the best over the baseline; None without any.

    In each process that variant counts which is the fastest in the other processes.
    """
    joined = {entry.impl: case.joined.impls[entry.impl] for entry in case.ranked if not entry.usually_waits}
    if (base := joined.get(baseline)) is None:
        return None
    pairs = {
        name: {pair.process: pair for pair in interleaved(base, joined[name])} for name in variants if name in joined
    }
    chosen: dict[int, Paired] = {}
    names: Counter[str] = Counter()
    for process in sorted({process for of_variant in pairs.values() for process in of_variant}):
        here = {name: of_variant for name, of_variant in pairs.items() if process in of_variant}
        name = max(here, key=lambda name: _elsewhere(here[name], process))
        chosen[process] = here[name][process]
        names[name] += 1
    return (names.most_common(1)[0][0], across_processes(speedups(list(chosen.values())))) if chosen else None


def _elsewhere(pairs: Mapping[int, Paired], process: int) -> float:
    """The mean log speedup in the other processes, or in this one where there are none."""
    return mean([pair.median_log for number, pair in pairs.items() if number != process] or [pairs[process].median_log])


def _mean(values: Sequence[float], total: int) -> Mean | None:
    return Mean(geomean(values), min(values), max(values), len(values), total) if values else None
