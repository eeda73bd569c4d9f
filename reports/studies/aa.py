"""The A/A study: every implementation measured against itself, and how small a planted slowdown is found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.analysis import figures
from harness.analysis.joining import Joined, JoinedCase, aa_ratio, band, by_case
from harness.analysis.statistics import Ratio, verdict
from harness.records.file import Results
from harness.records.schema import RowRecord, Timing
from reports.markdown_writer import paragraphs, table
from reports.parts import provenance
from reports.table import words

SLOWDOWNS = (0.01, 0.02, 0.03, 0.05)
EXPECTED = 0.02  # the planted slowdown whose misses are listed
LONG_US = 20.0  # below, the engine's fixed error weighs
MOST_LISTED = 40
ABOUT = (
    "A cell is one implementation on one case, which stood in the blocks twice: its true ratio to itself is 1. It is "
    "judged against the case's A/A band, as any two implementations are. The baseline's own cells make that band, so "
    "they cannot be told apart and count separately. For the power, the second appearance's samples are made slower by "
    "a known amount."
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
    comparisons: list[SelfComparison] = []
    for case in by_case(results).values():
        aa = band(case, results.run.settings.baseline)
        for impl, role in case:
            if role == "again" and aa is not None:
                comparisons += _self_comparison(case, impl, aa, results.run.settings.baseline)
    return comparisons


def render(results: Results) -> str:
    """The study as markdown."""
    comparisons = self_comparisons(results)
    if not comparisons:
        return ASK
    judged = [pair for pair in comparisons if not pair.makes_band]
    claims = [pair for pair in judged if pair.claim]
    missed = [pair for pair in judged if not pair.detected[EXPECTED] and pair.median_us > LONG_US]
    parts = [provenance.heading("A/A", results.run), ABOUT, _counted(comparisons, judged, claims)]
    parts += [_power(judged), _list("Called different from themselves", claims)]
    parts += [_list(f"A slowdown of {EXPECTED:.0%} not found, above {LONG_US:.0f} us".replace("%", " %"), missed)]
    return paragraphs(parts)


def _self_comparison(case: JoinedCase, impl: str, aa: float, baseline: str) -> list[SelfComparison]:
    first, again = case.get((impl, "impl")), case[impl, "again"]
    measured = aa_ratio(case, impl)
    if measured is None or first is None or first.median_us is None:
        return []
    return [
        SelfComparison(
            case=first.case.key,
            impl=impl,
            median_us=first.median_us,
            ratio=measured,
            band=aa,
            makes_band=impl == baseline,
            claim=verdict(measured, aa) != "same",
            detected={by: _is_detected(first, again, aa, by) for by in SLOWDOWNS},
        )
    ]


def _is_detected(first: Joined, again: Joined, aa: float, by: float) -> bool:
    slower = aa_ratio(JoinedCase({(first.impl, "impl"): first, (first.impl, "again"): slowed(again, by)}), first.impl)
    return slower is not None and verdict(slower, aa) == "slower"


def slowed(joined: Joined, by: float) -> Joined:
    """The same result with every sample longer by a share of itself."""
    return replace(joined, rows=tuple(_slowed(row, row.timing, by) if row.timing else row for row in joined.rows))


def _slowed(row: RowRecord, timing: Timing, by: float) -> RowRecord:
    longer = timing.model_copy(update={"samples_us": [sample * (1 + by) for sample in timing.samples_us]})
    return row.model_copy(update={"timing": longer})


def _counted(
    comparisons: Sequence[SelfComparison], judged: Sequence[SelfComparison], claims: Sequence[SelfComparison]
) -> str:
    text = f"{figures.count(len(comparisons), 'cell')}, {len(comparisons) - len(judged)} of them the baseline's own."
    if not judged:
        return text
    offs = np.abs([math.log(pair.ratio.value) for pair in judged])
    middle, high, most = (figures.spread(float(value)) for value in np.percentile(offs, (50, 95, 100)))
    return (
        f"{text} Called different from themselves, which must be none: {figures.share(len(claims), len(judged))}. "
        f"Distance of the ratio from 1: median {middle} %, 95th percentile {high} %, largest {most} %."
    )


def _power(judged: Sequence[SelfComparison]) -> str:
    long = [pair for pair in judged if pair.median_us > LONG_US]
    short = [pair for pair in judged if pair.median_us <= LONG_US]
    rows = [
        [
            f"{100 * by:.0f} %",
            *(figures.share(sum(c.detected[by] for c in group), len(group)) for group in (long, short)),
        ]
        for by in SLOWDOWNS
    ]
    limit = f"{LONG_US:.0f} us"
    return table(["planted slowdown", f"found, above {limit}", f"found, {limit} or less"], rows) if judged else ""


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
    return f"## {title}\n\n" + table([*words("case", "impl"), "us", "ratio to itself [95 %]", "A/A band"], rows) + more
