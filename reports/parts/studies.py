"""Studies of the engine: implementations against themselves, processes against each other, other engines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean, median, stdev

import numpy as np

from harness.analysis.comparison import Comparison
from harness.analysis.joining import Joined, aa_ratio, pairs
from harness.analysis.statistics import CONFIDENCE, IncomparableError, Ratio, geomean, verdict
from harness.cases import NormCase
from harness.grouping import grouped
from harness.records.schema import RANKED
from reports import figures
from reports.markdown_writer import escape, paragraphs, table
from reports.parts import conditions
from reports.table import left

MOST_LISTED = 40
ABOUT_AA = (
    "Each implementation was in the blocks of a case twice: its true ratio to itself is 1. It is judged against the "
    "case's A/A band, as any two implementations are. The baseline's own pairs make that band, so they count "
    "separately."
)
ABOUT_PROCESSES = (
    "A comparison is one implementation on one case, against the baseline: a speedup for each process. A process is "
    "off by the distance from the mean of all, scaled by the root of n / (n - 1), as the mean includes the process."
)
ABOUT_FIRST_CALLS = (
    "Seconds to prepare (with the forward) and to call a backward the first time, over all cases. With empty caches, "
    "`normbwd bench --compile-ahead 0 --processes 2` has both: the first process compiles, the second finds it on disk."
)
ABOUT_ENGINES = (
    "Median us of each engine, and that over ours; no other enters a ranking. They flush by a write alone. do_bench "
    "does not hold the stream: a call that the host enqueues more slowly than the device runs it takes the host's time."
)
ASK_AA = "No implementation has a second appearance here; `normbwd bench --twice` gives every one.\n"
ASK_PROCESSES = "This run has one process a case; `normbwd bench --processes 5` has more.\n"
ASK_ENGINES = "No other engine timed anything here; `normbwd bench --cross-check` has them do so.\n"


@dataclass(frozen=True)
class SelfComparison:
    """One implementation against itself on one case; that of the baseline `makes_band`."""

    case: str
    impl: str
    median_us: float
    ratio: Ratio
    band: float
    makes_band: bool

    @property
    def claim(self) -> bool:
        """Whether it is called faster or slower than itself."""
        return verdict(self.ratio, self.band) != "same"


def self_comparisons(comparison: Comparison) -> list[SelfComparison]:
    """Every implementation that can be compared with itself, in the order of the file."""
    comparisons: list[SelfComparison] = []
    for case in comparison.cases:
        rows, aa = case.joined, case.aa_band
        for impl in (impl for impl, role in rows if role == "again"):
            first, measured = rows.get((impl, "impl")), aa_ratio(rows, impl)
            if aa is not None and measured is not None and first is not None and first.median_us is not None:
                makes_band = impl == comparison.baseline
                comparisons.append(SelfComparison(case.case.key, impl, first.median_us, measured, aa, makes_band))
    return comparisons


def aa(comparison: Comparison) -> str:
    """How often an implementation is called different from itself."""
    comparisons = self_comparisons(comparison)
    if not comparisons:
        return ASK_AA
    judged = [pair for pair in comparisons if not pair.makes_band]
    claims = [pair for pair in judged if pair.claim]
    counted = f"{figures.count(len(comparisons), 'pair')}, {len(comparisons) - len(judged)} of them the baseline's own."
    parts = [conditions.heading("A/A", comparison.run), ABOUT_AA, counted]
    if judged:
        offs = np.abs([math.log(pair.ratio.value) for pair in judged])
        middle, high, most = (figures.spread(float(value)) for value in np.percentile(offs, (50, 95, 100)))
        parts.append(
            f"Called different from themselves, which must be none: {figures.share(len(claims), len(judged))}. "
            f"Distance of the ratio from 1: median {middle} %, 95th percentile {high} %, largest {most} %."
        )
    return paragraphs([*parts, _list("Called different from themselves", claims)])


def _list(title: str, listed: Sequence[SelfComparison]) -> str:
    if not listed:
        return ""
    rows = [
        [p.case, p.impl, figures.microseconds(p.median_us), figures.ratio_and_interval(p.ratio), figures.band(p.band)]
        for p in listed[:MOST_LISTED]
    ]
    more = f"\n\n… {len(listed) - MOST_LISTED} more" if len(listed) > MOST_LISTED else ""
    return f"## {title}\n\n" + table([*left("case", "impl"), "us", "ratio to itself [95 %]", "A/A band"], rows) + more


def processes(comparison: Comparison) -> str:
    """How far processes are apart: the speedup over the baseline from each process alone."""
    entries: list[tuple[Sequence[float], Sequence[float]]] = []  # the log speedup of each process, and its median us
    for case in (case.joined for case in comparison.cases):
        for impl, joined in case.impls.items():
            with suppress(IncomparableError):
                logs = [pair.median_log for pair in pairs(case.get((comparison.baseline, "impl")), joined)]
                if impl != comparison.baseline and len(logs) > 1:
                    entries.append((logs, joined.medians_us))
    if not entries:
        return ASK_PROCESSES
    offs = [abs(log - fmean(logs)) * math.sqrt(len(logs) / (len(logs) - 1)) for logs, _ in entries for log in logs]
    scatter = (
        f"{figures.count(len(entries), 'comparison')} in {max(len(logs) for logs, _ in entries)} processes. "
        f"Standard deviation between processes: of medians {_spreads([us for _, us in entries], math.log)}; of "
        f"speedups {_spreads([logs for logs, _ in entries])}. A process's speedup is off by at most "
        f"{figures.spread(float(np.percentile(offs, 100 * CONFIDENCE)))} % in {100 * CONFIDENCE:.0f} % of all."
    )
    return paragraphs([conditions.heading("Agreement of processes", comparison.run), ABOUT_PROCESSES, scatter])


def _spreads(values: Sequence[Sequence[float]], log: Callable[[float], float] = float) -> str:
    """The median and the largest standard deviation of the logs."""
    spreads = [stdev(map(log, of_entry)) for of_entry in values]
    return f"median {figures.spread(median(spreads))} %, largest {figures.spread(max(spreads))} %"


def first_calls(comparison: Comparison) -> str:
    """How long each implementation prepares and is called first, over all cases, in the first process and later."""
    seconds: dict[str, dict[bool, dict[tuple[NormCase, int], float]]] = {}
    every = (row for case in comparison.cases for joined in case.joined.values() for row in joined.rows)
    for row in (row for row in every if row.prepare_s is not None):
        of_impl = seconds.setdefault(row.impl, {True: {}, False: {}})
        of_impl[row.process == 0][row.case, row.process] = row.prepare_s or 0.0
    ahead = {impl.name for impl in comparison.run.implementations if impl.compiles_ahead}
    ahead = ahead if comparison.end and comparison.end.stages_s.get("compile ahead") else set[str]()
    rows: list[list[str]] = []
    for impl, by_process in seconds.items():
        first, later = by_process[True], by_process[False]
        processes = len({process for _, process in later})
        times = sum(first.values()), max(first.values(), default=0.0), sum(later.values()) / max(1, processes)
        texts = [f"{time:.1f}" for time in times[: 2 + bool(later)]]
        first_text, slowest, *warm = ["compiled ahead", figures.NOTHING, *texts[2:]] if impl in ahead else texts
        rows.append([impl, str(len(first)), first_text, slowest, *(warm or [figures.NOTHING])])
    heads = [*left("impl"), "cases", "all, first process", "slowest", "all, a later process"]
    return paragraphs([conditions.heading("First calls", comparison.run), ABOUT_FIRST_CALLS, table(heads, rows)])


def engines(comparison: Comparison) -> str:
    """A line for each implementation on each case that another engine timed as well, and the geometric means."""
    timed = [
        (joined, engines_us)
        for case in comparison.cases
        for joined in case.joined.impls.values()
        if joined.status in RANKED and (engines_us := other_engines(joined))
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
    parts = [conditions.heading("Other engines", comparison.run), ABOUT_ENGINES, table(headings, rows)]
    return paragraphs([*parts, f"Geometric mean over ours: {escape(', '.join(means))}." if means else ""])


def other_engines(joined: Joined) -> Mapping[str, float]:
    """Each engine's figure in us, the median over the processes in which it timed."""
    readings = grouped(reading for row in joined.rows for reading in row.other_engines_us.items())
    return {engine: median(values) for engine, values in readings.items()}
