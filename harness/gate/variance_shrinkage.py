"""The scatter of many cells, each seen in few processes: what all of them show tempers what one of them seems to.

Smyth, Linear models and empirical Bayes methods for assessing differential expression in microarray experiments,
Stat. Appl. Genet. Mol. Biol. 3 (2004), article 3: thousands of genes and few arrays there, tens of cases and few
processes here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.results.statistics import Estimate

Values = NDArray[np.float64]

FEWEST_CELLS = 3  # two do not show how much cells differ from each other
SMALLEST = 1e-5  # of the median variance: below, a cell's processes agreed by chance, and its log would outweigh all


def moderated(variances: ArrayLike, freedoms: ArrayLike) -> tuple[Values, Values]:
    """Variances `(..., cells)`, each drawn towards a common one, and the degrees of freedom behind them then.

    Each was found with the degrees of freedom in `freedoms` (of the same shape, or one that broadcasts to it). The true
    ones are taken to be drawn from a scaled inverse chi-square distribution, whose scale and freedom follow from mean
    and variance of the logs: cells that differ no more than chance lets them have much in common, others little. What
    is common never weighs more than what a cell showed itself, unlike in Smyth's paper: a few cells that truly scatter
    more than the others would be believed too soon. Unchanged where there are fewer than FEWEST_CELLS.
    """
    own = np.asarray(variances, dtype=float)
    freedom = np.broadcast_to(np.asarray(freedoms, dtype=float), own.shape)
    median = np.median(own, axis=-1, keepdims=True) if own.shape[-1] >= FEWEST_CELLS else np.zeros(1)
    if not (median > 0).all():
        return own, freedom
    common, weight = _prior(np.maximum(own, SMALLEST * median), freedom)
    weight = np.minimum(weight, freedom)
    return (weight * common + freedom * own) / (weight + freedom), weight + freedom


def tempered(means: Sequence[Estimate]) -> list[Estimate]:
    """Means of independent values, a degree of freedom less than values behind each, with moderated errors."""
    if not means:
        return []
    freedoms = np.array([each.freedom for each in means])
    values = freedoms + 1
    variances, freedoms = moderated(np.array([each.error for each in means]) ** 2 * values, freedoms)
    errors = np.sqrt(variances / values)
    return [Estimate(of.value, *found) for of, *found in zip(means, errors.tolist(), freedoms.tolist(), strict=True)]


def _prior(variances: Values, freedom: Values) -> tuple[Values, Values]:
    """The scale and the degrees of freedom of the distribution that variances come from: `(..., 1)` each.

    Smyth's equations for s0 and d0. Where the logs differ no more than those of equal variances would, the freedom is
    as good as infinite.
    """
    from scipy.special import digamma, polygamma  # slow to import

    logs = np.log(variances) - digamma(freedom / 2) + np.log(freedom / 2)
    mean = logs.mean(axis=-1, keepdims=True)
    beyond_chance = logs.var(axis=-1, ddof=1, keepdims=True) - polygamma(1, freedom / 2).mean(axis=-1, keepdims=True)
    half = _inverse_trigamma(np.maximum(beyond_chance, 1e-6))
    return np.exp(mean + digamma(half) - np.log(half)), 2 * half


def _inverse_trigamma(values: Values) -> Values:
    """The positive numbers whose trigamma is given: by Newton's method on its reciprocal, from below (Smyth's own)."""
    from scipy.special import polygamma

    found = 0.5 + 1 / values
    for _ in range(20):  # it converges from any start; 8 are enough for what data can show
        trigamma = polygamma(1, found)
        found = found + trigamma * (1 - trigamma / values) / polygamma(2, found)
    return found
