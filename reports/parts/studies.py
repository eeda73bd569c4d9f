"""Studies of the engine: implementations against themselves, processes against each other, other engines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median, stdev

import numpy as np

from harness.analysis.joining import Joined, JoinedCase, aa_ratio, band, by_case, ratio
from harness.analysis.statistics import (
    CONFIDENCE,
    IncomparableError,
    Ratio,
    beyond_processes,
    geomean,
    median_and_spread,
    verdict,
)
from harness.cases import NormCase
from harness.records.file import Results
from harness.records.schema import RANKED, RowRecord
from reports import figures
from reports.markdown_writer import escape, paragraphs, table
from reports.parts import conditions
from reports.table import left

SLOWDOWNS = (0.01, 0.02, 0.03, 0.05)
EXPECTED = 0.02  # the planted slowdown whose misses are listed
LONG_US = 20.0  # below, the engine's fixed error weighs
MOST_LISTED = 40
ABOUT_AA = (
    "Each implementation was in the blocks of a case twice: its true ratio to itself is 1. It is judged against the "
    "case's A/A band, as any two implementations are. The baseline's own pairs make that band, so they count "
    "separately. For the power, the second appearance's samples are made slower by a known amount."
)
ABOUT_PROCESSES = (
    "An entry is one implementation on one case, against the baseline: a speedup for each process, with the interval "
    "from inside that process. Processes agree where all their intervals share a point. Widened: by what each "
    "process could not tell apart, its own A/A band."
)
ABOUT_FIRST_CALLS = (
    "Seconds to prepare (with the forward) and to call a backward the first time, over all cases. With empty caches, "
    "`normbwd bench --compile-ahead 0 --processes 2` has both: the first process compiles, the second finds it on disk."
)
ABOUT_ENGINES = (
    "Median us of each engine, and that over ours. The others flush, queue and average in their own ways; none of "
    "their figures enters a ranking."
)
ASK_AA = "No implementation has a second appearance here; `normbwd bench --twice` gives every one.\n"
ASK_PROCESSES = "This run has one process a case; `normbwd bench --processes 5` has more.\n"
ASK_ENGINES = "No other engine timed anything here; `normbwd bench --cross-check` has them do so.\n"


@dataclass(frozen=True)
class SelfComparison:
    """One implementation against itself on one case; `detected` says, for each planted slowdown, whether it is seen."""

    case: str
    impl: str
    median_us: float
    ratio: Ratio
    band: float
    makes_band: bool
    claim: bool
    detected: dict[float, bool]


def self_comparisons(results: Results) -> list[SelfComparison]:
    """Every implementation that can be compared with itself, in the order of the file."""
    baseline = results.run.settings.baseline
    comparisons: list[SelfComparison] = []
    for case, rows in by_case(results).items():
        aa = band(rows, baseline)
        for impl in (impl for impl, role in rows if role == "again" and aa is not None):
            first, measured = rows.get((impl, "impl")), aa_ratio(rows, impl)
            if aa is None or measured is None or first is None or first.median_us is None:
                continue
            detected = {by: _is_detected(first, rows[impl, "again"], aa, by) for by in SLOWDOWNS}
            claim = verdict(measured, aa) != "same"
            comparisons.append(
                SelfComparison(case.key, impl, first.median_us, measured, aa, impl == baseline, claim, detected)
            )
    return comparisons


def _is_detected(first: Joined, again: Joined, aa: float, by: float) -> bool:
    """Whether the second appearance is called slower where each of its samples is longer by a share of itself."""

    def longer(row: RowRecord) -> RowRecord:
        if row.timing is None:
            return row
        samples = [sample * (1 + by) for sample in row.timing.samples_us]
        return row.model_copy(update={"timing": row.timing.model_copy(update={"samples_us": samples})})

    again = replace(again, rows=tuple(map(longer, again.rows)))
    slower = aa_ratio(JoinedCase({(first.impl, "impl"): first, (first.impl, "again"): again}), first.impl)
    return slower is not None and verdict(slower, aa) == "slower"


def aa(results: Results) -> str:
    """How often an implementation is called different from itself, and how small a planted slowdown is detected."""
    comparisons = self_comparisons(results)
    if not comparisons:
        return ASK_AA
    judged = [pair for pair in comparisons if not pair.makes_band]
    claims = [pair for pair in judged if pair.claim]
    missed = [pair for pair in judged if not pair.detected[EXPECTED] and pair.median_us > LONG_US]
    counted = f"{figures.count(len(comparisons), 'pair')}, {len(comparisons) - len(judged)} of them the baseline's own."
    parts = [conditions.heading("A/A", results.run), ABOUT_AA, counted]
    if judged:
        offs = np.abs([math.log(pair.ratio.value) for pair in judged])
        middle, high, most = (figures.spread(float(value)) for value in np.percentile(offs, (50, 95, 100)))
        parts.append(
            f"Called different from themselves, which must be none: {figures.share(len(claims), len(judged))}. "
            f"Distance of the ratio from 1: median {middle} %, 95th percentile {high} %, largest {most} %."
        )
        sizes = [[pair for pair in judged if (pair.median_us > LONG_US) == is_long] for is_long in (True, False)]
        rows = [
            [f"{100 * by:.0f} %", *(figures.share(sum(pair.detected[by] for pair in of), len(of)) for of in sizes)]
            for by in SLOWDOWNS
        ]
        heads = [f"found, above {LONG_US:.0f} us", f"found, {LONG_US:.0f} us or less"]
        parts.append(table(["planted slowdown", *heads], rows))
    parts += [_list("Called different from themselves", claims)]
    parts += [_list(f"A slowdown of {100 * EXPECTED:.0f} % not found, above {LONG_US:.0f} us", missed)]
    return paragraphs(parts)


def _list(title: str, listed: Sequence[SelfComparison]) -> str:
    if not listed:
        return ""
    rows = [
        [p.case, p.impl, figures.microseconds(p.median_us), figures.ratio_and_interval(p.ratio), figures.band(p.band)]
        for p in listed[:MOST_LISTED]
    ]
    more = f"\n\n… {len(listed) - MOST_LISTED} more" if len(listed) > MOST_LISTED else ""
    return f"## {title}\n\n" + table([*left("case", "impl"), "us", "ratio to itself [95 %]", "A/A band"], rows) + more


@dataclass(frozen=True)
class Agreement:
    """The speedups of one implementation over the baseline, a process each, and their A/A bands (log ratios)."""

    case: str
    impl: str
    ratios: tuple[Ratio, ...]
    bands: tuple[float, ...]
    medians_us: tuple[float, ...]

    def agrees(self, widened: bool = False) -> bool:
        """Whether all intervals share a point, each `widened` by the A/A band of its process or as it is."""
        pairs = [(ratio, aa if widened else 0.0) for ratio, aa in zip(self.ratios, self.bands, strict=True)]
        return max(r.low * math.exp(-aa) for r, aa in pairs) <= min(r.high * math.exp(aa) for r, aa in pairs)


def agreements_of(results: Results) -> list[Agreement]:
    """The implementations, case by case, that two processes or more have measured, in the order of the file."""
    baseline = results.run.settings.baseline
    agreements: list[Agreement] = []
    for case, joined in by_case(results).items():
        by_process = [
            _of_process(joined, process) for process in sorted({r.process for of in joined.values() for r in of.rows})
        ]
        for impl in (impl for impl, role in joined if role == "impl" and impl != baseline):
            compared: list[tuple[Ratio, float, float]] = []
            for rows in by_process:
                with suppress(IncomparableError):
                    speedup = ratio(rows.get((baseline, "impl")), rows.get((impl, "impl")))
                    median_us, _ = median_and_spread(rows[impl, "impl"].timings[0].samples_us)
                    compared.append((speedup, band(rows, baseline) or 0.0, median_us))
            if len(compared) > 1:
                agreements.append(Agreement(case.key, impl, *map(tuple, zip(*compared, strict=True))))
    return agreements


def _of_process(case: JoinedCase, process: int) -> JoinedCase:
    """What one process measured of the case."""
    rows = {key: tuple(row for row in joined.rows if row.process == process) for key, joined in case.items()}
    return JoinedCase({key: replace(case[key], rows=of_key) for key, of_key in rows.items() if of_key})


def process_bound(agreements: Sequence[Agreement]) -> float:
    """What 95 % of processes are off by, over all entries, as a log ratio: PROCESS_BAND comes from this."""
    offs = [off for agreement in agreements for off in beyond_processes(agreement.ratios)]
    return float(np.percentile(offs, 100 * CONFIDENCE))


def processes(results: Results) -> str:
    """Whether processes agree: the speedup over the baseline from each process alone."""
    agreements = agreements_of(results)
    if not agreements:
        return ASK_PROCESSES
    apart = [each for each in agreements if not each.agrees(widened=True)]
    counted = (
        f"{figures.count(len(agreements), 'comparison')} in {max(len(each.ratios) for each in agreements)} processes. "
        f"Agree: {figures.share(sum(each.agrees() for each in agreements), len(agreements))}; "
        f"widened: {figures.share(len(agreements) - len(apart), len(agreements))}."
    )
    scatter = (
        f"Standard deviation between processes: of medians {_spreads([each.medians_us for each in agreements])}; of "
        f"speedups {_spreads([[ratio.value for ratio in each.ratios] for each in agreements])}. A process's speedup is "
        f"off by at most {figures.spread(process_bound(agreements))} % in {100 * CONFIDENCE:.0f} % of all, taken from "
        "their mean and scaled by the root of n / (n - 1)."
    )
    parts = [conditions.heading("Agreement of processes", results.run), ABOUT_PROCESSES, counted, scatter]
    rows = [
        [e.case, e.impl, "; ".join(map(figures.ratio_and_interval, e.ratios)), ", ".join(map(figures.band, e.bands))]
        for e in apart
    ]
    if rows:
        headings = [*left("case", "impl"), "speedup of each process [95 %]", "A/A bands"]
        parts += ["## Processes that do not agree", table(headings, rows)]
    return paragraphs(parts)


def _spreads(values: Sequence[Sequence[float]]) -> str:
    """The median and the largest standard deviation of the logs."""
    spreads = [stdev(map(math.log, of_entry)) for of_entry in values]
    return f"median {figures.spread(median(spreads))} %, largest {figures.spread(max(spreads))} %"


def first_calls(results: Results) -> str:
    """How long each implementation prepares and is called first, over all cases, in the first process and later."""
    seconds: dict[str, dict[bool, dict[tuple[NormCase, int], float]]] = {}
    for row in (row for row in results.rows if row.prepare_s is not None):
        of_impl = seconds.setdefault(row.impl, {True: {}, False: {}})
        of_impl[row.process == 0][row.case, row.process] = row.prepare_s or 0.0
    ahead = {impl.name for impl in results.run.implementations if impl.compiles_ahead}
    ahead = ahead if results.end and results.end.stages_s.get("compile ahead") else set[str]()
    rows: list[list[str]] = []
    for impl, by_process in seconds.items():
        first, later = by_process[True], by_process[False]
        processes = len({process for _, process in later})
        times = sum(first.values()), max(first.values(), default=0.0), sum(later.values()) / max(1, processes)
        texts = [f"{time:.1f}" for time in times[: 2 + bool(later)]]
        first_text, slowest, *warm = ["compiled ahead", figures.NOTHING, *texts[2:]] if impl in ahead else texts
        rows.append([impl, str(len(first)), first_text, slowest, *(warm or [figures.NOTHING])])
    heads = [*left("impl"), "cases", "all, first process", "slowest", "all, a later process"]
    return paragraphs([conditions.heading("First calls", results.run), ABOUT_FIRST_CALLS, table(heads, rows)])


def engines(results: Results) -> str:
    """A line for each implementation on each case that another engine timed as well, and the geometric means."""
    timed = [
        (joined, engines_us)
        for case in by_case(results).values()
        for (_, role), joined in case.items()
        if role == "impl" and joined.status in RANKED and (engines_us := other_engines(joined))
    ]
    if not timed:
        return ASK_ENGINES
    over_ours: dict[str, list[float]] = {name: [] for name in sorted({name for _, of in timed for name in of})}
    rows: list[list[str]] = []
    for joined, engines_us in timed:
        rows.append([joined.case.key, joined.impl, figures.microseconds(joined.median_us)])
        for engine, quotients in over_ours.items():
            us = engines_us.get(engine)
            quotient = us / joined.median_us if us is not None and joined.median_us else None
            quotients.extend([] if quotient is None else [quotient])
            rows[-1] += [figures.microseconds(us), figures.plain_ratio(quotient)]
    headings = [*left("case", "impl"), "ours", *(head for engine in over_ours for head in (engine, f"{engine} / ours"))]
    means = [
        f"{engine} {figures.plain_ratio(geomean(quotients))} ({figures.count(len(quotients), 'figure')})"
        for engine, quotients in over_ours.items()
        if quotients
    ]
    parts = [conditions.heading("Other engines", results.run), ABOUT_ENGINES, table(headings, rows)]
    return paragraphs([*parts, f"Geometric mean over ours: {escape(', '.join(means))}." if means else ""])


def other_engines(joined: Joined) -> Mapping[str, float]:
    """Each engine's figure in us, the median over the processes in which it timed."""
    readings: dict[str, list[float]] = {}
    for row in joined.rows:
        for engine, us in row.other_engines_us.items():
            readings.setdefault(engine, []).append(us)
    return {engine: median(values) for engine, values in readings.items()}
