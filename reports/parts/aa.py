"""The A/A study: every implementation measured against itself, and how small a planted slowdown is detected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.analysis.joining import Joined, JoinedCase, aa_ratio, band, by_case
from harness.analysis.statistics import Ratio, verdict
from harness.records.file import Results
from harness.records.schema import RowRecord
from reports import figures
from reports.markdown_writer import paragraphs, table
from reports.parts import provenance
from reports.table import left

SLOWDOWNS = (0.01, 0.02, 0.03, 0.05)
EXPECTED = 0.02  # the planted slowdown whose misses are listed
LONG_US = 20.0  # below, the engine's fixed error weighs
MOST_LISTED = 40
ABOUT = (
    "Each implementation was in the blocks of a case twice: its true ratio to itself is 1. It is judged against the "
    "case's A/A band, as any two implementations are. The baseline's own pairs make that band, so they count "
    "separately. For the power, the second appearance's samples are made slower by a known amount."
)
ASK = "No implementation has a second appearance here; `normbwd bench --twice` gives every one.\n"


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
            first, again, measured = rows.get((impl, "impl")), rows[impl, "again"], aa_ratio(rows, impl)
            if aa is None or measured is None or first is None or first.median_us is None:
                continue
            detected = {by: _is_detected(first, again, aa, by) for by in SLOWDOWNS}
            claim = verdict(measured, aa) != "same"
            comparisons.append(
                SelfComparison(case.key, impl, first.median_us, measured, aa, impl == baseline, claim, detected)
            )
    return comparisons


def slowed(joined: Joined, by: float) -> Joined:
    """The same result with every sample longer by a share of itself."""

    def longer(row: RowRecord) -> RowRecord:
        if row.timing is None:
            return row
        samples = [sample * (1 + by) for sample in row.timing.samples_us]
        return row.model_copy(update={"timing": row.timing.model_copy(update={"samples_us": samples})})

    return replace(joined, rows=tuple(map(longer, joined.rows)))


def render(results: Results) -> str:
    """The study as markdown."""
    comparisons = self_comparisons(results)
    if not comparisons:
        return ASK
    judged = [pair for pair in comparisons if not pair.makes_band]
    claims = [pair for pair in judged if pair.claim]
    missed = [pair for pair in judged if not pair.detected[EXPECTED] and pair.median_us > LONG_US]
    counted = f"{figures.count(len(comparisons), 'pair')}, {len(comparisons) - len(judged)} of them the baseline's own."
    parts = [provenance.heading("A/A", results.run), ABOUT, counted]
    parts += [_distances(judged, claims), _power(judged)] if judged else []
    parts += [_list("Called different from themselves", claims)]
    parts += [_list(f"A slowdown of {100 * EXPECTED:.0f} % not found, above {LONG_US:.0f} us", missed)]
    return paragraphs(parts)


def _is_detected(first: Joined, again: Joined, aa: float, by: float) -> bool:
    slower = aa_ratio(JoinedCase({(first.impl, "impl"): first, (first.impl, "again"): slowed(again, by)}), first.impl)
    return slower is not None and verdict(slower, aa) == "slower"


def _distances(judged: Sequence[SelfComparison], claims: Sequence[SelfComparison]) -> str:
    offs = np.abs([math.log(pair.ratio.value) for pair in judged])
    middle, high, most = (figures.spread(float(value)) for value in np.percentile(offs, (50, 95, 100)))
    return (
        f"Called different from themselves, which must be none: {figures.share(len(claims), len(judged))}. "
        f"Distance of the ratio from 1: median {middle} %, 95th percentile {high} %, largest {most} %."
    )


def _power(judged: Sequence[SelfComparison]) -> str:
    groups = [[pair for pair in judged if (pair.median_us > LONG_US) == is_long] for is_long in (True, False)]
    rows = [
        [f"{100 * by:.0f} %", *(figures.share(sum(pair.detected[by] for pair in of), len(of)) for of in groups)]
        for by in SLOWDOWNS
    ]
    return table(["planted slowdown", f"found, above {LONG_US:.0f} us", f"found, {LONG_US:.0f} us or less"], rows)


def _list(title: str, listed: Sequence[SelfComparison]) -> str:
    if not listed:
        return ""
    rows = [
        [
            pair.case,
            pair.impl,
            figures.microseconds(pair.median_us),
            figures.ratio_and_interval(pair.ratio),
            figures.band(pair.band),
        ]
        for pair in listed[:MOST_LISTED]
    ]
    more = f"\n\n… {len(listed) - MOST_LISTED} more" if len(listed) > MOST_LISTED else ""
    return f"## {title}\n\n" + table([*left("case", "impl"), "us", "ratio to itself [95 %]", "A/A band"], rows) + more
