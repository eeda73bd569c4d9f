"""How head differs from base in a `compare` run: on one case, and in the geometric mean over all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Literal, get_args

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.joining import pairs
from harness.analysis.statistics import PROCESS_FREEDOM, Estimate, Ratio, estimate, mean_by_t

Change = Literal["slower", "too noisy to tell", "faster", "same"]
CHANGES: tuple[Change, ...] = get_args(Change)  # what a reader has to look at first
TELLING = math.log1p(0.02)  # where a loss of 2 % can be neither seen nor excluded, `same` would say too much


def change(case: CaseComparison, entry: Entry | None) -> Change | None:
    """The verdict on head's speed, `too noisy to tell` where a `same` may hide 2 %; None where there is no verdict."""
    if entry is None or entry.speedup is None or entry.verdict is None:
        return None
    low, high = entry.speedup.low, entry.speedup.high
    reach = max(-math.log(low) if low > 0 else math.inf, math.log(high), case.aa_band or 0.0)
    return "too noisy to tell" if entry.verdict == "same" and reach > TELLING else entry.verdict


def mean_speedup(cases: Sequence[CaseComparison], base: str, head: str) -> tuple[Ratio, int] | None:
    """The geometric mean speedup of head over base with its 95 % interval, and its number of cases.

    It is about these cases, so that the interval is across processes; of one process it is as wide as that of a case.
    None where head is ranked beside base in no case.
    """
    ranked = [
        (case, entry.speedup) for case in cases if (entry := case.entry(head)) and entry.verdict and entry.speedup
    ]
    if len(ranked) < 2:
        return (ranked[0][1], 1) if ranked else None
    joined = [case.joined.impls for case, _ in ranked]
    logs = [{pair.process: pair.median_log for pair in pairs(of.get(base), of.get(head))} for of in joined]
    shared = set[int].intersection(*map(set[int], logs))
    if len(shared) > 1:
        mean = mean_by_t([fmean(of_case[process] for of_case in logs) for process in shared])
    else:
        each = [estimate(speedup) for _, speedup in ranked]
        mean = Estimate(fmean(one.value for one in each), fmean(one.error for one in each), PROCESS_FREEDOM)
    return mean.as_ratio(sum(speedup.blocks for _, speedup in ranked), len(shared)), len(ranked)
