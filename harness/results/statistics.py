"""Ratios and how sure they are: numbers in, numbers out.

Blocks, not samples, are the unit: the implementations of a block ran next to each other, so drift of clocks and
temperature cancels inside a block, and neighbouring blocks stay neighbours in the bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.results.schema import Timing

RESAMPLES = 1000
CONFIDENCE = 0.95
# Addresses and compilations are drawn once a process, and ratios differ for it: by 0.31 and 0.34 % (sd, the median over
# cells) in two runs of three processes on an H200. One process must not claim less than 1.96 of that, rounded up;
# docs/method.md has the study.
PROCESS_BAND = 0.007
# That scatter differs from cell to cell. A normal test with it calls one run in ten of 60 cells regressed where nothing
# changed; with so many degrees of freedom, as if five processes had told it, one in a hundred.
PROCESS_FREEDOM = 4
SEED = 20  # fixed, so that the same file always gives the same report
FALSE_DISCOVERIES = 0.05  # of what a gate calls regressed, the share that may be chance
FEWEST_FOR_BOOTSTRAP = 8  # below, resampled medians take too few values to have tails

Verdict = Literal["faster", "slower", "same"]


class IncomparableError(ValueError):
    """Two rows of which no ratio may be formed; the message says why."""


@dataclass(frozen=True)
class Ratio:
    """How many times faster one implementation is than another, with its 95 % interval and what stands behind it."""

    value: float
    low: float
    high: float
    blocks: int
    processes: int = 1


@dataclass(frozen=True)
class Estimate:
    """A log ratio as far as it is known: its standard error, and the degrees of freedom behind that."""

    value: float
    error: float
    freedom: float

    def p_below(self, bound: float) -> float:
        """The one-sided p-value of "it is below `bound`": small where it can hardly be the bound or above.

        A test against a margin other than 0, as of non-inferiority: Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987).
        """
        from scipy.stats import t  # slow to import

        if not (self.error > 0 and math.isfinite(self.error)):  # all processes read the same, or nothing is known
            return (0.0 if self.value < bound else 1.0) if self.error == 0 else 0.5
        return float(t.cdf((self.value - bound) / self.error, self.freedom))

    def bounds(self) -> tuple[float, float]:
        """Its lower and its upper 95 % bound, each one-sided: together a 90 % interval."""
        from scipy.stats import t

        half = float(t.ppf(CONFIDENCE, self.freedom)) * self.error
        return self.value - half, self.value + half


def speedup(base_us: Sequence[float], other_us: Sequence[float]) -> Ratio:
    """The speedup of other over base, from samples matched block by block: above 1 where other is faster.

    The median over blocks of log(base / other), transformed back. The interval is a stationary block bootstrap of that
    median, or the sign-test interval where that is wider; from 6 or 7 blocks it is min..max; from fewer it is 0..inf,
    as not even min..max covers a median in 95 % of cases. It knows nothing of the bias of a process. Raises
    IncomparableError where the lengths differ, or a sample is not a positive number.
    """
    base, other = np.asarray(base_us, dtype=float), np.asarray(other_us, dtype=float)
    if base.shape != other.shape or base.ndim != 1 or base.size == 0:
        raise IncomparableError(f"{base.size} samples cannot be matched with {other.size}")
    if not (np.isfinite(base).all() and np.isfinite(other).all() and (base > 0).all() and (other > 0).all()):
        raise IncomparableError("a sample is not a positive number of microseconds")
    logs = np.log(base / other)
    low, high = _interval_of_median(logs)
    return Ratio(math.exp(np.median(logs)), math.exp(low), math.exp(high), logs.size)


def timing_speedup(base: Timing, other: Timing) -> Ratio:
    """The speedup of one timed row over another, over the blocks that both have.

    Raises IncomparableError where the two were not interleaved: unequal group or flush, or no block in common.
    """
    if base.group != other.group:
        raise IncomparableError(f"timed in different groups, {base.group} and {other.group}")
    if base.flush != other.flush:
        raise IncomparableError(f"timed with different flushes, {base.flush} and {other.flush}")
    return speedup(*_matched(base, other))


def median_log(base: Timing, other: Timing) -> float:
    """The log of `timing_speedup` without its interval, for two rows that were compared before."""
    of_base, of_other = _matched(base, other)
    return float(np.median(np.log(np.divide(of_base, of_other))))


def speedups(base: Sequence[Timing], other: Sequence[Timing]) -> list[Ratio]:
    """The speedup of one implementation over another in each process that timed both, matched by group.

    Raises IncomparableError where no two timings were interleaved.
    """
    of_other = {timing.group: timing for timing in other}
    pairs = [(timing, of_other[timing.group]) for timing in base if timing.group in of_other]
    if not pairs:
        groups = [", ".join(timing.group for timing in timings) or "none" for timings in (base, other)]
        raise IncomparableError(f"timed in different groups, {groups[0]} and {groups[1]}")
    return [timing_speedup(*pair) for pair in pairs]


def across_processes(ratios: Sequence[Ratio]) -> Ratio:
    """One ratio of those of several processes: the mean of the logs, and its t interval; a single one is itself.

    Blocks of one process share its addresses and clocks, so only processes are independent.
    """
    if len(ratios) == 1:
        return ratios[0]
    from scipy.stats import t  # slow to import

    logs = np.log([ratio.value for ratio in ratios])
    mean, error = float(logs.mean()), float(logs.std(ddof=1)) / math.sqrt(logs.size)
    half = float(t.ppf((1 + CONFIDENCE) / 2, logs.size - 1)) * error
    blocks = sum(ratio.blocks for ratio in ratios)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), blocks, len(ratios))


def estimate(ratio: Ratio) -> Estimate:
    """The log of a ratio with its standard error, which its interval was made of.

    Several processes: Student's t again, with a degree of freedom less than processes. One: from the longer side of the
    interval of its median as if that were normal, and from the scatter that it cannot see, PROCESS_BAND's.
    """
    from scipy.stats import norm, t

    tail = (1 + CONFIDENCE) / 2
    value = math.log(ratio.value)
    half = max(value - math.log(ratio.low), math.log(ratio.high) - value) if ratio.low > 0 else math.inf
    if ratio.processes > 1:
        freedom = ratio.processes - 1
        return Estimate(value, half / float(t.ppf(tail, freedom)), freedom)
    return Estimate(value, math.hypot(half, PROCESS_BAND) / float(norm.ppf(tail)), PROCESS_FREEDOM)


def mean_of_logs(logs: Sequence[Sequence[float]]) -> Estimate:
    """The mean of log ratios, a sequence a cell and in it a value a process: the log of a geometric mean.

    Student's t over the cells or over the processes, whichever knows less: cells that a process measured share some of
    its bias, so they are fewer than they seem. A single process has the scatter of PROCESS_BAND. At least two cells.
    """
    from scipy.stats import norm

    values = np.asarray(logs, dtype=float)
    cells, processes = values.mean(axis=1), values.mean(axis=0)
    by_cell = _by_t(cells)
    by_process = (
        _by_t(processes)
        if processes.size > 1
        else Estimate(by_cell.value, PROCESS_BAND / float(norm.ppf((1 + CONFIDENCE) / 2)), PROCESS_FREEDOM)
    )
    return min(by_cell, by_process, key=lambda known: known.bounds()[0])


def adjusted(ps: Sequence[float]) -> list[float]:
    """The p-values of many tests looked at together: those up to q hold at most a share q of false discoveries.

    Benjamini and Hochberg, J. R. Statist. Soc. B 57 (1995): for tests that are independent or positively dependent.
    """
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(ps, method="bh")] if ps else []


def aa_band(again: Sequence[Ratio]) -> float:
    """What an interval does not know, as a log ratio, from an A/A pair's ratio in each process (0.004 is 0.4 %).

    What the pair reads; of a single process at least PROCESS_BAND, and infinite where the pair has no interval.
    """
    if len(again) > 1:
        return aa_reading(again)
    known = again[0].low > 0 and math.isfinite(again[0].high)
    return max(PROCESS_BAND, aa_reading(again)) if known else math.inf


def aa_reading(again: Sequence[Ratio]) -> float:
    """What an A/A pair reads, as a log ratio, from its ratio in each process: the root of the mean square.

    The true ratio is 1: what is read instead is a bias between two places in a block, or between two copies of the same
    code. A mean would let the bias of one process make up for that of another, while what is judged by it may have the
    same bias in all.
    """
    return math.sqrt(math.fsum(math.log(ratio.value) ** 2 for ratio in again) / len(again))


def verdict(ratio: Ratio, band: float) -> Verdict:
    """Faster or slower where the whole interval lies outside the A/A band (a log ratio), otherwise same."""
    if ratio.low > math.exp(band):
        return "faster"
    return "slower" if ratio.high < math.exp(-band) else "same"


def spans_agree(event_us: float, span_us: float, offset_us: float) -> bool:
    """Whether events and the profiler saw the same work: within 1 us or 2 %, once the events' own share is taken off.

    `span_us` is the profiler's lead and span; `offset_us` that share, as a self-test found it for one kernel.
    """
    return abs(event_us - offset_us - span_us) <= max(1.0, 0.02 * event_us)


def median_and_spread(samples: Sequence[float]) -> tuple[float, float]:
    """The median of samples and half their inter-quartile range over it; nan, nan where there are none."""
    if not samples:
        return math.nan, math.nan
    lower, median, upper = (float(value) for value in np.percentile(samples, (25, 50, 75)))
    return median, (upper - lower) / 2 / median if median else math.nan


def geomean(values: Sequence[float]) -> float:
    """The geometric mean of positive values; nan where there are none."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values)) if values else math.nan


def sign_test_interval(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of a median by ranks alone: for independent values of any distribution; infinite below six."""
    rank = _sign_test_rank(len(values))
    if rank is None:
        return -math.inf, math.inf
    ordered = np.sort(values)
    return float(ordered[rank]), float(ordered[-1 - rank])


def _by_t(values: NDArray[np.float64]) -> Estimate:
    return Estimate(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(values.size), values.size - 1)


def _matched(base: Timing, other: Timing) -> tuple[list[float], list[float]]:
    """The samples of the blocks that both have."""
    of_base = dict(zip(base.blocks, base.samples_us, strict=True))
    of_other = dict(zip(other.blocks, other.samples_us, strict=True))
    common = sorted(of_base.keys() & of_other.keys())
    if not common:
        raise IncomparableError("no block holds both")
    return [of_base[block] for block in common], [of_other[block] for block in common]


def _interval_of_median(logs: NDArray[np.float64]) -> tuple[float, float]:
    # Measured coverage of a nominal 95 %: bootstrap alone 87 % from 20 independent blocks and 92 % from 150; the sign
    # test holds for independent blocks of any distribution, and the bootstrap adds the drift that it ignores.
    low, high = sign_test_interval(logs)
    if logs.size < FEWEST_FOR_BOOTSTRAP:
        return low, high
    length = max(2, round(logs.size ** (1 / 3)))  # the usual growth; 2 at least, so that neighbours stay neighbours
    medians = np.median(logs[_resamples(logs.size, length)], axis=1)
    tail = 50 * (1 - CONFIDENCE)
    bootstrap_low, bootstrap_high = np.percentile(medians, (tail, 100 - tail))
    return min(low, float(bootstrap_low)), max(high, float(bootstrap_high))


@lru_cache(maxsize=1024)
def _sign_test_rank(count: int) -> int | None:
    """The rank, from either end, of the ordered values that hold the median 95 % of the time; None where none do."""
    below, rank = 0, -1
    while (below := below + math.comb(count, rank + 1)) / 2**count <= (1 - CONFIDENCE) / 2:
        rank += 1
    return rank if rank >= 0 else None


@lru_cache(maxsize=32)
def _resamples(count: int, length: int) -> NDArray[np.int32]:
    """Indices of every resample `(RESAMPLES, count)`: drawn once a size, as arch costs 50 ms a call."""
    from arch.bootstrap import StationaryBootstrap  # imports pandas and statsmodels: seconds

    bootstrap = StationaryBootstrap(length, np.arange(count, dtype=np.int32), seed=SEED)
    return np.stack([positional[0] for positional, _ in bootstrap.bootstrap(RESAMPLES)])
