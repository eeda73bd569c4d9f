"""Runs of a gate on noise like an H200's: how often it cries wolf, and what it finds.

    python -m tests.simulated_runs

prints the table of docs/method.md. Whole runs are judged by the gate itself; thousands of them by the same arithmetic
on arrays, from the medians of processes. The tests hold the two against each other.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr
from scipy.stats import false_discovery_control

from harness.analysis.statistics import CONFIDENCE, FALSE_DISCOVERIES, PROCESS_BAND, PROCESS_FREEDOM, process_error
from harness.gate.limits import Regression
from harness.gate.variance_shrinkage import shrunk_variances
from tests.results_factory import CASE, results, row

HEAD, BASE = "mine@head", "mine@base"
BASE_US = 50.0


@dataclass(frozen=True)
class Noise:
    """Standard deviations of log ratios.

    `block`: of one block; `process`: of the bias that a process has, in the median cell; `uneven`: of the logs of these
    deviations, in which cells differ; `shared`: which part of the variance of a process's bias is the same in all cells
    (a share of 1); `drift`: of what all implementations of a process share, and no ratio may see.
    """

    block: float = 0.0195
    process: float = 0.006
    uneven: float = 0.6
    shared: float = 0.12
    drift: float = 0.01


# tests/gate/test_simulation.py compares the first two with published runs.
H200 = Noise()  # any two implementations
ALIKE = Noise(process=0.0015)  # two that compile to the same kernel
EVEN = Noise(uneven=0.0)
NAMED = {"unlike": H200, "alike": ALIKE}
LOSSES = (0.01, 0.02, 0.03, 0.05)
SETTINGS = [  # noise, processes, minimum_effect
    ("unlike", 1, 0.01),
    ("unlike", 3, 0.01),
    ("unlike", 5, 0.01),
    ("unlike", 5, 0.02),
    ("unlike", 10, 0.01),
    ("alike", 1, 0.01),
    ("alike", 3, 0.01),
    ("alike", 5, 0.01),
    ("alike", 5, 0.02),
    ("alike", 10, 0.01),
]
CASES = [replace(CASE, rows=512 * (1 + number)) for number in range(60)]


@dataclass(frozen=True)
class Shape:
    """How large a run is."""

    cells: int = 60
    processes: int = 5
    blocks: int = 120


def deviations(rng, runs, shape=Shape(), noise=H200):
    """The standard deviation between processes that each cell has: (runs, cells)."""
    return noise.process * np.exp(noise.uneven * rng.standard_normal((runs, shape.cells)))


def medians(rng, runs, planted=0.0, shape=Shape(), noise=H200, everywhere=False, between=None):
    """The median log speedup of head over base, and of the base's twin over base: two (runs, cells, processes).

    `planted` is by how much (a log ratio) the head is slower, in the first cell or everywhere; `between` are the
    deviations of the cells, where several runs are of the same ones.
    """
    size = (runs, shape.cells, shape.processes)
    of_median = noise.block * np.sqrt(np.pi / 2 / shape.blocks)
    process = (deviations(rng, runs, shape, noise) if between is None else between)[..., None]
    all_cells, own = rng.standard_normal((runs, 1, shape.processes)), rng.standard_normal(size)
    bias = process * (np.sqrt(noise.shared) * all_cells + np.sqrt(1 - noise.shared) * own)
    head = bias + of_median * rng.standard_normal(size)
    head[:, slice(None) if everywhere else 0] -= planted
    return head, of_median * rng.standard_normal(size)


@dataclass(frozen=True)
class Found:
    """What the gate says of each cell of each run, and of each geometric mean."""

    regressed: np.ndarray
    passed: np.ndarray
    mean_regressed: np.ndarray

    @property
    def any_regressed(self):
        return self.regressed.any(axis=1) | self.mean_regressed

    @property
    def open(self):
        return ~self.regressed & ~self.passed


def judged(head, twin, minimum_effect=0.01, geomean_effect=0.005, alone=False):
    """The verdicts of a regression on these medians, as harness/regressions.py reaches them.

    With `alone` each cell's scatter is found from that cell alone, as it was before: to see what that is worth.
    """
    cells, processes = head.shape[1:]
    value, mean = head.mean(axis=2), head.mean(axis=(1, 2)) + np.log1p(geomean_effect)
    delta = np.maximum(np.log1p(minimum_effect), np.sqrt((twin**2).mean(axis=2)))
    if processes > 1:
        variances, freedom = head.var(axis=2, ddof=1), np.full(head.shape[:2], processes - 1)
        variances, freedom = (variances, freedom) if alone else shrunk_variances(variances, freedom)
        error = np.sqrt(variances / processes)
        of_mean, of_process = head.mean(axis=1).std(axis=1, ddof=1) / np.sqrt(processes), processes - 1
    else:  # the interval inside the process is not simulated: about that of a median
        scatter = process_error()
        freedom = of_process = PROCESS_FREEDOM
        error, of_mean = np.hypot(H200.block * np.sqrt(np.pi / 2 / 120), scatter), scatter
        delta = np.maximum(delta, PROCESS_BAND)
    p = stdtr(freedom, (value + delta) / error)
    regressed = false_discovery_control(p, axis=1) <= FALSE_DISCOVERIES
    passed = ~regressed & (p >= CONFIDENCE)
    if cells == 1:
        return Found(regressed, passed, np.zeros(len(head), dtype=bool))
    by_cell = stdtr(cells - 1, mean / (value.std(axis=1, ddof=1) / np.sqrt(cells)))
    by_process = stdtr(of_process, mean / of_mean)
    return Found(regressed, passed, np.maximum(by_cell, by_process) <= 1 - CONFIDENCE)


def confirmed(first, head, twin):
    """What is found once what failed was measured again: these medians are a second run's, as large as the first."""
    regressed, mean_regressed = first.regressed.copy(), first.mean_regressed.copy()
    for run in np.flatnonzero(first.any_regressed):
        cells = first.regressed[run]
        if cells.any():
            regressed[run, cells] = judged(head[[run]][:, cells], twin[[run]][:, cells]).regressed
        if first.mean_regressed[run]:
            mean_regressed[run] = judged(head[[run]], twin[[run]]).mean_regressed[0]
    return Found(regressed, first.passed, mean_regressed)


def results_of(head, twin, rng=None, shape=Shape(), noise=H200):
    """A results file whose processes have these medians, in blocks with noise and drift, or bare without `rng`."""
    rows = []
    for cell in range(head.shape[0]):
        for process in range(head.shape[1]):
            logs = {(HEAD, "impl"): -head[cell, process], (BASE, "impl"): 0.0, (BASE, "again"): -twin[cell, process]}
            shared = noise.drift * rng.standard_normal(shape.blocks).cumsum() / 10 if rng else 0.0
            for (impl, role), log in logs.items():
                own = noise.block / np.sqrt(2) * rng.standard_normal(shape.blocks) if rng else np.zeros(shape.blocks)
                us = BASE_US * np.exp(log + shared + own)
                timed = {"group": f"p{process}", "flush": "clean", "samples_us": us.tolist()}
                rows.append(row(impl, role=role, case=CASES[cell], process=process, timing=timed))
    return results(*rows, names=(HEAD, BASE), baseline=BASE, processes=shape.processes)


def biases(rng, shape=Shape(), noise=H200):
    """What the processes of one run are off by, for blocks that bring the rest of the noise themselves."""
    head, twin = medians(rng, 1, shape=shape, noise=replace(noise, block=0.0))
    return head[0], twin[0]


def asked(**more):
    return Regression(**{"head": HEAD, "base": BASE, **more})


def table(runs=2000):
    """The figures of docs/method.md: a line for each of SETTINGS."""
    heads = ["sides", "processes", "minimum_effect", "false alarms", "cells open", "runs with one open"]
    heads += [f"{loss:.0%} found" for loss in LOSSES]
    lines = [heads, ["---"] * len(heads)]
    for name, processes, effect in SETTINGS:
        shape = Shape(processes=processes)
        none, *some = (
            judged(*medians(np.random.default_rng(1), runs, np.log1p(loss), shape, NAMED[name]), minimum_effect=effect)
            for loss in (0.0, *LOSSES)
        )
        shares = [none.any_regressed, none.open, none.open.any(axis=1), *(found.regressed[:, 0] for found in some)]
        figures = [f"{100 * share.mean():.1f} %" for share in shares]
        lines.append([name, str(processes), f"{100 * effect:.0f} %", *figures])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())
