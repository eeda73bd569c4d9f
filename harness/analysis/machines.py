"""Speedups over several GPUs of a model: what of them may be said of the model, and by what runs differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.joining import interleaved
from harness.analysis.statistics import CONFIDENCE, Estimate, Ratio, SpeedVerdict, Values, verdict
from harness.defaults import OWN_IMPL
from harness.records.run_records import STACK

# Two runs of a cell, on other days and maybe machines, differ by up to 3.16 % in 95 % of 439 pairs on H200s, and by up
# to 1.40 % in 95 % of 691 on H100s; this is above both. `normbwd report results/h200/*.bz2 --format gpus` prints it.
RUN_BAND = 0.035
FEWEST_GPUS = 3  # that a claim about a model of GPU rests on

Cell = tuple[str, str]  # the key of a case, and an implementation


def random_effects(groups: Sequence[Values]) -> Estimate:
    """The mean of log ratios over GPUs that differ, from the processes of each GPU (`groups`, two or more).

    The variance between GPUs is that of DerSimonian and Laird, Control. Clin. Trials 7 (1986); Student's t and the
    error are those of Hartung and Knapp, Stat. Med. 20 (2001). Within GPUs the variance of one process is pooled.
    """
    means, counts = np.array([np.mean(group) for group in groups]), np.array([len(group) for group in groups])
    squares = sum(float(np.sum((np.asarray(group) - np.mean(group)) ** 2)) for group in groups)
    freedom, spare = len(groups) - 1, int(counts.sum()) - len(groups)
    within = squares / spare / counts if squares > 0 else np.zeros(len(groups))
    between = float(np.var(means, ddof=1))  # where nothing is known within, all variance is between
    if within.any():
        weights = 1 / within
        q = float(np.sum(weights * (means - np.average(means, weights=weights)) ** 2))
        between = max(0.0, (q - freedom) / float(weights.sum() - np.sum(weights**2) / weights.sum()))
    weights = 1 / (within + between) if within.any() else np.ones(len(groups))
    mean = float(np.average(means, weights=weights))
    error = math.sqrt(float(np.average((means - mean) ** 2, weights=weights)) / freedom)
    return Estimate(mean, error, freedom)


@dataclass(frozen=True)
class OverGpus:
    """The runs of one model of GPU: log speedups of each cell by run, and by GPU for each process.

    GPUs of files that do not name theirs count as one.
    """

    runs: Sequence[Comparison]

    @cached_property
    def by_run(self) -> dict[tuple[object, ...], list[float]]:
        """The log speedups of each cell in the runs that rank it, by flush and versions; those of one are left out."""
        logs: dict[tuple[object, ...], list[float]] = {}
        for run in self.runs:
            of_run = run.run.settings.flush, run.run.engine_version, *(run.run.libraries.get(name) for name in STACK)
            for cell, speedup in _speedups(run):
                logs.setdefault((*cell, *of_run), []).append(math.log(speedup.value))
        return {cell: of_cell for cell, of_cell in logs.items() if len(of_cell) > 1}

    @property
    def differences(self) -> list[float]:
        """How far two runs of a cell are apart, as log ratios."""
        return [abs(one - two) for logs in self.by_run.values() for one, two in combinations(logs, 2)]

    @cached_property
    def by_gpu(self) -> dict[Cell, dict[str, list[float]]]:
        """The log speedups of each cell by GPU, one a process."""
        cells: dict[Cell, dict[str, list[float]]] = {}
        for run in self.runs:
            for case in run.cases:
                for cell, gpu, log in _of_processes(case, run):
                    cells.setdefault(cell, {}).setdefault(gpu, []).append(log)
        return cells

    @property
    def gpus(self) -> set[str]:
        """The GPUs, each by a name that nothing else has."""
        return {gpu for of_cell in self.by_gpu.values() for gpu in of_cell}

    def claims(self) -> dict[Cell, tuple[Ratio, SpeedVerdict]]:
        """What may be said of the model: the speedup of each cell that FEWEST_GPUS measured, beyond RUN_BAND or not."""
        return {cell: claim(of_cell) for cell, of_cell in self.by_gpu.items() if len(of_cell) >= FEWEST_GPUS}


def claim(by_gpu: Mapping[str, Values]) -> tuple[Ratio, SpeedVerdict]:
    """The speedup over several GPUs with its interval, and whether it is beyond what runs differ by."""
    ratio = random_effects(list(by_gpu.values())).as_ratio(blocks=0, processes=sum(map(len, by_gpu.values())))
    return ratio, verdict(ratio, RUN_BAND)


@dataclass(frozen=True)
class CasePlace:
    """How the in-house kernel does in a case: ahead of all others, tied with some, behind, or without a verdict.

    `lead` is the fastest of its variants over the fastest of the others, None where either does not rank.
    """

    said: Literal["ahead", "tied", "behind", "no verdict"]
    lead: float | None


def place(case: CaseComparison, floor: float | None = RUN_BAND) -> CasePlace:
    """The place of the in-house kernel, where a lead within the floor or the A/A band is a tie."""
    if case.lead is None:
        return CasePlace("no verdict", None)
    first, ratios = case.lead.impl, case.lead.ratios
    band = case.lead.band if floor is None else max(floor, case.lead.band or 0.0)
    leaders = [_is_own(impl) for impl in (first, *case.lead.tied(band))]
    best = next((ratio for impl, ratio in ratios.items() if _is_own(impl) != _is_own(first)), None)
    lead = None if best is None else best.value if _is_own(first) else 1 / best.value
    return CasePlace("ahead" if all(leaders) else "tied" if any(leaders) else "behind", lead)


def _is_own(impl: str) -> bool:
    """Whether an implementation is the in-house kernel or a variant of it."""
    return impl == OWN_IMPL or impl.startswith(f"{OWN_IMPL}-")


def largest_usual(differences: Sequence[float]) -> float:
    """What 95 % of the differences between runs are below: RUN_BAND comes from this."""
    return float(np.percentile(differences, 100 * CONFIDENCE))


def _speedups(run: Comparison) -> Iterator[tuple[Cell, Ratio]]:
    for case in run.cases:
        yield from (((case.case.key, entry.impl), entry.speedup) for entry in case.ranked if entry.speedup)


def _of_processes(case: CaseComparison, run: Comparison) -> Iterator[tuple[Cell, str, float]]:
    """The log speedup of each ranked implementation in each process, with the name of the process's GPU."""
    fleet: dict[int | None, str | None] = {use.gpu.number: use.gpu.gpu for use in run.gpus}
    base = case.joined.get((run.baseline, "impl"))
    for entry in (entry for entry in case.ranked if entry.speedup and base):
        joined = case.joined[entry.impl, "impl"]
        names = {row.process: fleet.get(row.gpu, run.run.device.gpu) or "unnamed" for row in joined.rows}
        for pair in interleaved(base, joined) if base else []:
            yield (case.case.key, entry.impl), names[pair.process], pair.median_log
