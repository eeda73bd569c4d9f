"""Empirical-Bayes shrinkage of per-case variances (limma; Smyth 2004).

Smyth, Linear models and empirical Bayes methods for assessing differential expression in microarray experiments,
Stat. Appl. Genet. Mol. Biol. 3 (2004), article 3: the paper has thousands of genes and few arrays; we have
tens of cases and few processes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, polygamma

from harness.analysis.statistics import Estimate

Values = NDArray[np.float64]

FEWEST_CASES = 3  # two do not show how much the variances of cases differ
SMALLEST = 1e-5  # of the median variance: below, a case's processes agreed by chance, and its log would outweigh all


def shrunk_variances(variances: ArrayLike, freedoms: ArrayLike) -> tuple[Values, Values]:
    """Variances `(..., cases)`, each shrunk towards a common one, and their degrees of freedom afterwards.

    `freedoms` are the degrees of freedom of each variance (of the same shape, or one that broadcasts to it). The true
    variances are taken to be drawn from a scaled inverse chi-square distribution, whose scale and freedom follow from
    the mean and the variance of the logs: the more alike the cases are, the more they share. Unlike in
    Smyth's paper, the common variance never weighs more than the case's own; otherwise the losses of a few cases that
    truly scatter more would be believed too soon. Unchanged where there are fewer than FEWEST_CASES.
    """
    own = np.asarray(variances, dtype=float)
    freedom = np.broadcast_to(np.asarray(freedoms, dtype=float), own.shape)
    median = np.median(own, axis=-1, keepdims=True) if own.shape[-1] >= FEWEST_CASES else np.zeros(1)
    if not (median > 0).all():
        return own, freedom
    common, weight = _prior(np.maximum(own, SMALLEST * median), freedom)
    weight = np.minimum(weight, freedom)
    return (weight * common + freedom * own) / (weight + freedom), weight + freedom


def shrunk(means: Sequence[Estimate]) -> list[Estimate]:
    """Means of independent values with shrunk variances; n values have n - 1 degrees of freedom."""
    if not means:
        return []
    freedoms = np.array([mean.freedom for mean in means])
    counts = freedoms + 1
    variances, freedoms = shrunk_variances(np.array([mean.error for mean in means]) ** 2 * counts, freedoms)
    errors = np.sqrt(variances / counts).tolist()
    return [Estimate(mean.value, *known) for mean, *known in zip(means, errors, freedoms.tolist(), strict=True)]


def _prior(variances: Values, freedom: Values) -> tuple[Values, Values]:
    """The scale and the degrees of freedom of the distribution that variances come from: `(..., 1)` each.

    Smyth's equations for s0 and d0. Where the logs differ no more than those of equal variances would, the freedom is
    as good as infinite.
    """
    logs = np.log(variances) - digamma(freedom / 2) + np.log(freedom / 2)
    mean = logs.mean(axis=-1, keepdims=True)
    beyond_chance = logs.var(axis=-1, ddof=1, keepdims=True) - polygamma(1, freedom / 2).mean(axis=-1, keepdims=True)
    half = _inverse_trigamma(np.maximum(beyond_chance, 1e-6))
    return np.exp(mean + digamma(half) - np.log(half)), 2 * half


def _inverse_trigamma(values: Values) -> Values:
    """The positive numbers whose trigamma is given: by Newton's method on its reciprocal, from below (Smyth's own)."""
    root = 0.5 + 1 / values
    for _ in range(20):  # it converges from any start; 8 are enough for real variances
        trigamma = polygamma(1, root)
        root = root + trigamma * (1 - trigamma / values) / polygamma(2, root)
    return root
