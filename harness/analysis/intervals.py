"""95 % intervals: of a median by ranks and by a block bootstrap, of a mean by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit  # scipy.stats takes a second longer to import

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
    below, rank = 0, -1
    while (below := below + math.comb(count, rank + 1)) / 2**count <= (1 - CONFIDENCE) / 2:
        rank += 1
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


def _resamples(count: int, length: int) -> NDArray[np.int32]:
    """Indices of every resample `(RESAMPLES, count)` of a stationary bootstrap."""
    from arch.bootstrap import StationaryBootstrap  # imports pandas and statsmodels: seconds

    bootstrap = StationaryBootstrap(length, np.arange(count, dtype=np.int32), seed=SEED)
    return np.stack([positional[0] for positional, _ in bootstrap.bootstrap(RESAMPLES)])
