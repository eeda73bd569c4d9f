"""Speedups, their 95 % intervals, A/A bands and verdicts, as functions of numbers.

Ratios are formed within a block: its samples follow each other, so drift of clocks and temperature cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import geometric_mean, quantiles
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtri, stdtr, stdtrit  # scipy.stats takes a second longer to import

from harness.records.reason_texts import sentence
from harness.records.reasons import Reason

CONFIDENCE = 0.95
RESAMPLES = 1000
SEED = 20  # fixed, so that the same file always gives the same report
FEWEST_FOR_BOOTSTRAP = 8  # of fewer values, resampled medians take too few different values for percentiles

Interval = tuple[float, float]
Values = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """An estimate of a log ratio, with its standard error and degrees of freedom."""

    value: float
    error: float
    freedom: float

    def p_below(self, bound: float) -> float:
        """The one-sided p-value of "it is below `bound`": small where the bound or more can be ruled out.

        A test against a margin other than 0, as of non-inferiority: Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987).
        """
        if not (self.error > 0 and math.isfinite(self.error)):  # all processes read the same, or nothing is known
            return (0.0 if self.value < bound else 1.0) if self.error == 0 else 0.5
        return float(stdtr(self.freedom, (self.value - bound) / self.error))

    def interval(self) -> Interval:
        """Its 95 % interval."""
        return self._between((1 + CONFIDENCE) / 2)

    def as_ratio(self, blocks: int, processes: int) -> Ratio:
        """The ratio with its 95 % interval, over so many blocks and processes."""
        low, high = self.interval()
        return Ratio(math.exp(self.value), math.exp(low), math.exp(high), blocks, processes)

    def bounds(self) -> Interval:
        """Its lower and its upper 95 % bound, each one-sided: together a 90 % interval."""
        return self._between(CONFIDENCE)

    def _between(self, quantile: float) -> Interval:
        half = t_quantile(quantile, self.freedom) * self.error
        return self.value - half, self.value + half


def t_quantile(probability: float, freedom: float) -> float:
    """What Student's t of so many degrees of freedom stays below with this probability."""
    return float(stdtrit(freedom, probability))


def mean_by_t(values: Values) -> Estimate:
    """The mean of two or more independent values, with Student's t behind its interval."""
    array = np.asarray(values, dtype=float)
    return Estimate(float(array.mean()), float(array.std(ddof=1)) / math.sqrt(array.size), array.size - 1)


def rank_interval(values: Values) -> Interval:
    """The 95 % interval of a median by the sign test: for independent values of any distribution; infinite below six.

    A spread estimated from samples that take few values (a clock's ticks, two addresses) can be 0; ranks cannot.
    """
    rank = _sign_test_rank(len(values))
    if rank is None:
        return -math.inf, math.inf
    ordered = np.sort(values)
    return float(ordered[rank]), float(ordered[-1 - rank])


def block_interval(values: NDArray[np.float64]) -> Interval:
    """The 95 % interval of a median of values in order of time: a stationary block bootstrap, or by ranks where wider.

    The measured coverage of a nominal 95 %: bootstrap alone 87 % from 20 independent blocks and 92 % from 150. Ranks
    hold for independent blocks of any distribution, and the bootstrap adds the drift that they ignore.
    """
    low, high = rank_interval(values)
    if values.size < FEWEST_FOR_BOOTSTRAP:
        return low, high
    length = max(2, round(values.size ** (1 / 3)))  # the usual growth; 2 at least, so that neighbours stay neighbours
    medians = _medians_of_resamples(values, length)
    tail = 50 * (1 - CONFIDENCE)
    bootstrap_low, bootstrap_high = np.percentile(medians, (tail, 100 - tail))
    return min(low, float(bootstrap_low)), max(high, float(bootstrap_high))


@lru_cache(maxsize=1024)
def _sign_test_rank(count: int) -> int | None:
    """The rank, from either end, of the ordered values that bound the 95 % interval of the median; None if too few."""
    shares = bdtr(np.arange(count), count, 0.5)  # of so many heads or fewer
    rank = int(np.searchsorted(shares, (1 - CONFIDENCE) / 2, side="right")) - 1
    return rank if rank >= 0 else None


def _medians_of_resamples(values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """The median of every resample, from how often each sorted value was drawn, without sorting the resamples.

    This takes a tenth of the time of drawing and sorting 1000 resamples.
    """
    order = np.argsort(values)
    drawn = _times_drawn(values.size, length)
    drawn_so_far = np.cumsum(drawn[order], axis=0, dtype=drawn.dtype)
    lower, upper = (
        values[order][np.sum(drawn_so_far <= middle, axis=0, dtype=drawn.dtype)]
        for middle in ((values.size - 1) // 2, values.size // 2)
    )
    return (lower + upper) / 2


@lru_cache(maxsize=32)
def _times_drawn(count: int, length: int) -> NDArray[np.unsignedinteger]:
    """How often each value is drawn in each resample `(count, RESAMPLES)`; made once for a count."""
    drawn = [np.bincount(resample, minlength=count) for resample in _resamples(count, length)]
    return np.stack(drawn, axis=1).astype(np.min_scalar_type(count))


def _resamples(count: int, length: int) -> NDArray[np.int64]:
    """Indices of every resample `(RESAMPLES, count)` of a stationary bootstrap (Politis and Romano, JASA 89, 1994).

    A block goes on, round the end, with the probability 1 - 1 / length. The draws are those of arch.bootstrap, of which
    the import takes seconds.
    """
    generator, places = np.random.default_rng(SEED), np.arange(count)
    draws = [(generator.integers(count, size=count), generator.random(count)) for _ in range(RESAMPLES)]
    firsts, goes_on = (np.stack(each) for each in zip(*draws, strict=True))
    starts = np.maximum.accumulate(np.where(goes_on > 1 / length, 0, places), axis=1)
    return (np.take_along_axis(firsts, starts, axis=1) + places - starts) % count


# A process draws its addresses and compilations once, so ratios differ between processes. One process must not claim a
# smaller difference than the error of 95 % of processes: 1.85 % of five on an H200 and 1.37 % of five on an H100, the
# larger rounded up. `normbwd report FILE --format processes` prints it.
PROCESS_BAND = 0.019
# The scatter between processes differs from case to case, so its tails are heavier than a normal's. It is taken as
# Student's t with so many degrees of freedom, scaled so that 95 % lie within PROCESS_BAND.
PROCESS_FREEDOM = 4
PROCESS_ERROR = PROCESS_BAND / t_quantile((1 + CONFIDENCE) / 2, PROCESS_FREEDOM)  # the standard error of that
FALSE_DISCOVERIES = 0.05  # the share of a gate's regressions that may be due to chance

SpeedVerdict = Literal["faster", "slower", "same"]


class IncomparableError(ValueError):
    """No ratio may be formed of two results, for a reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return sentence(self.reason)


@dataclass(frozen=True)
class Ratio:
    """How many times faster one implementation is than another, its 95 % interval, and its number of blocks."""

    value: float
    low: float
    high: float
    blocks: int
    processes: int = 1


def speedup(base_us: Sequence[float], other_us: Sequence[float]) -> Ratio:
    """The speedup of other over base, from samples matched block by block: above 1 where other is faster.

    The median over blocks of log(base / other), transformed back, and its `block_interval`: min..max from 6 or 7
    blocks, 0..inf from fewer. The interval knows nothing of the bias of a process. Raises IncomparableError where the
    lengths differ, or a sample is not a positive number.
    """
    base, other = np.asarray(base_us, dtype=float), np.asarray(other_us, dtype=float)
    if base.shape != other.shape or base.ndim != 1 or base.size == 0:
        raise IncomparableError(Reason("other_number_of_samples", {"samples": [base.size, other.size]}))
    if not (np.isfinite(base).all() and np.isfinite(other).all() and (base > 0).all() and (other > 0).all()):
        raise IncomparableError(Reason("not_times"))
    logs = np.log(base / other)
    low, high = block_interval(logs)
    return Ratio(math.exp(np.median(logs)), math.exp(low), math.exp(high), logs.size)


def across_processes(ratios: Sequence[Ratio]) -> Ratio:
    """One ratio of those of several processes: the mean of the logs with its t interval; a single one is itself.

    Blocks of one process share its addresses and clocks, so only processes are independent.
    """
    if len(ratios) == 1:
        return ratios[0]
    mean = mean_by_t(np.log([ratio.value for ratio in ratios]))
    return mean.as_ratio(sum(ratio.blocks for ratio in ratios), len(ratios))


def estimate(ratio: Ratio) -> Estimate:
    """The log of a ratio with its standard error, taken back from its interval.

    Several processes: Student's t, as the interval was made. One: the longer side of the interval as if it were
    normal, and the scatter between processes, PROCESS_BAND, which one process cannot see.
    """
    tail = (1 + CONFIDENCE) / 2
    value = math.log(ratio.value)
    half = max(value - math.log(ratio.low), math.log(ratio.high) - value) if ratio.low > 0 else math.inf
    if ratio.processes > 1:
        freedom = ratio.processes - 1
        return Estimate(value, half / t_quantile(tail, freedom), freedom)
    return Estimate(value, math.hypot(half / float(ndtri(tail)), PROCESS_ERROR), PROCESS_FREEDOM)


def mean_of_logs(logs: Sequence[Sequence[float]]) -> Estimate:
    """The log of a geometric mean over cases: `logs` holds a sequence a case, and in it a log ratio a process.

    Student's t over the cases or over the processes, whichever has the lower bound: cases measured by one process
    share some of its bias, so they count for fewer. A single process has the scatter of PROCESS_BAND. At least two
    cases.
    """
    values = np.asarray(logs, dtype=float)
    by_case = mean_by_t(values.mean(axis=1))
    processes = values.mean(axis=0)
    by_process = mean_by_t(processes) if processes.size > 1 else Estimate(by_case.value, PROCESS_ERROR, PROCESS_FREEDOM)
    return min(by_case, by_process, key=lambda mean: mean.bounds()[0])


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """p-values adjusted by Benjamini and Hochberg, J. R. Statist. Soc. B 57 (1995).

    Those up to q hold at most a share q of false discoveries, where tests are independent or positively dependent.
    """
    from scipy.stats import false_discovery_control  # slow to import

    return [float(p) for p in false_discovery_control(ps, method="bh")] if ps else []


def aa_band(again: Sequence[Ratio]) -> float:
    """The A/A band as a log ratio (0.004 is 0.4 %), from the ratio of the A/A pair in each process.

    What the pair reads; of a single process at least PROCESS_BAND, and infinite where the pair has no interval.
    """
    if len(again) > 1:
        return aa_reading(again)
    has_interval = again[0].low > 0 and math.isfinite(again[0].high)
    return max(PROCESS_BAND, aa_reading(again)) if has_interval else math.inf


def aa_reading(again: Sequence[Ratio]) -> float:
    """The reading of an A/A pair as a log ratio: the root mean square over processes.

    The true ratio is 1; the reading is a bias between two places in a block, or between two copies of the same code. A
    plain mean would let the biases of processes cancel, while two implementations may have the same bias in every
    process.
    """
    return math.sqrt(math.fsum(math.log(ratio.value) ** 2 for ratio in again) / len(again))


def verdict(ratio: Ratio, band: float) -> SpeedVerdict:
    """Faster or slower where the whole interval lies outside the A/A band (a log ratio), otherwise same."""
    if ratio.low > math.exp(band):
        return "faster"
    return "slower" if ratio.high < math.exp(-band) else "same"


def spans_agree(event_us: float, span_us: float, offset_us: float) -> bool:
    """Whether events and the profiler saw the same work: within 1 us or 2 %.

    `span_us` is the profiler's lead and span; `offset_us` is what events read beyond it for one kernel, by a self-test.
    """
    return abs(event_us - offset_us - span_us) <= max(1.0, 0.02 * event_us)


def median_and_spread(samples: Sequence[float]) -> tuple[float, float]:
    """The median of samples and half their inter-quartile range over it; nan, nan where there are none."""
    if not samples:
        return math.nan, math.nan
    lower, middle, upper = quartiles(samples)
    return middle, (upper - lower) / 2 / middle if middle else math.nan


def quartiles(values: Sequence[float]) -> list[float]:
    """The quartiles, linear between two values, as numpy.percentile has them; a single value is all three."""
    return quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3


def geomean(values: Sequence[float]) -> float:
    """The geometric mean of positive values; nan where there are none."""
    return geometric_mean(values) if values else math.nan
