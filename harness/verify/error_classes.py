"""The class that an error is of: how far gradients may be off, and how much of that chance explains.

A class is claimed only where chance does not explain it. Rounding errors are as good as random, so that rho of few
elements scatters; each bound is widened by what equal errors would exceed with a probability of ALPHA over all cells of
the run together (Bonferroni). For more than a few thousand elements that is next to nothing.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from scipy.special import fdtri

from harness.records.schema import ErrorClass, TensorCheck
from harness.verify.reference import Exact

# Upper bounds of rho: k independent roundings beyond the last one give sqrt(1 + k), that is 1, 1.41, 1.73 and 2. Three
# is what a library documents that saves y and rounds every step of it; accumulation in low precision starts above.
CLASSES: tuple[tuple[float, ErrorClass], ...] = (
    (1.05, "exact"),
    (1.5, "one extra rounding"),
    (1.8, "two"),
    (2.1, "three"),
)

ALPHA = 0.05
# An error that is uniform between two numbers has a square whose variance is 0.8 times its squared mean: n of them
# scatter as a chi-square of 2.5 n degrees of freedom. Where the numbers differ in size, (sum r^2)^2 / sum r^4 counts
# those that matter, and is n / 1.8 where they do not.
FREEDOM_PER_ELEMENT = 2.5
FREEDOM = 1.8 * FREEDOM_PER_ELEMENT

MOST_SUSPECTS = 64  # rows of a piece whose degrees of freedom are computed

FP32_RESOLUTION = 2.0**-24
FP32_SMALLEST = 2.0**-149  # what a subnormal result is rounded to
# An fp32 backward rounds half a dozen times on the way to an element: statistics, xhat, products, differences.
FP32_ROUNDINGS = 2.0


class ErrorSums:
    """Squared errors of one gradient, added up piece by piece."""

    def __init__(self) -> None:
        self.error = 0.0
        self.rounding = 0.0
        self.rounding_fourth = 0.0
        self.resolution = 0.0
        self.size = 0.0
        self.rows = 0
        self.worst_row: float | None = None
        self.suspects: list[tuple[float, float]] = []  # rows beyond the last class: rho, and its degrees of freedom

    def add(self, out: torch.Tensor, exact: Exact, dtype: torch.dtype, depth: int, spoilt: torch.Tensor) -> None:
        """Add a piece; `depth` is how many terms the arithmetic sums up, whose tree is its logarithm deep.

        Where the reference, rounded to `dtype`, is no finite number, the gradient must not be one either. Where what
        goes in is `spoilt` by a NaN or Inf, it may be none although the reference is.
        """
        tree = math.sqrt(max(1.0, math.log2(max(depth, 1))))
        out, ref = out.to(dtype).double(), exact.values
        rounded = ref.to(dtype).double()
        finite = rounded.isfinite()
        if not bool((finite | ~out.isfinite()).all()):
            self.error = math.inf  # it swallowed a NaN, or an overflow
        compared = finite & ~(spoilt & ~out.isfinite())
        error, rounding, size, resolution = (
            torch.where(compared, values, 0.0).square()
            for values in (
                out - ref,
                rounded - ref,
                ref,
                (exact.terms * FP32_RESOLUTION + FP32_SMALLEST) * (FP32_ROUNDINGS * tree),
            )
        )
        self.error += float(error.sum())
        self.rounding += float(rounding.sum())
        # In units of the largest, as the fourth power of a small number is zero.
        largest = float(rounding.max()) if rounding.numel() else 0.0
        if largest > 0:
            self.rounding_fourth += float((rounding / largest).square().sum()) * largest**2
        self.resolution += float(resolution.sum())
        self.size += float(size.sum())
        if out.dim() == 2 and out.numel():
            self._add_rows(error, rounding, resolution, torch.where(compared, ref, 0.0))

    def _add_rows(
        self, error: torch.Tensor, rounding: torch.Tensor, resolution: torch.Tensor, ref: torch.Tensor
    ) -> None:
        """Statistics and sums of a row are common to all of its elements, and may have been added up one by one."""
        unavoidable = torch.maximum(rounding.sum(1), resolution.sum(1) * error.shape[1])
        rho = torch.where(error.sum(1) > 0, (error.sum(1) / unavoidable).sqrt(), 0.0)
        rho = rho.nan_to_num(nan=math.inf)
        self.worst_row = max(float(rho.max()), self.worst_row or 0.0)
        self.rows += error.shape[0]
        if self.worst_row > CLASSES[-1][0]:
            worst, places = rho.topk(min(len(rho), MOST_SUSPECTS))
            self.suspects += zip(worst.tolist(), _freedom_of_rows(ref[places]).tolist(), strict=True)

    def judge(self, cells: int) -> TensorCheck:
        """Rho and its class; a NaN or Inf where the reference is finite is infinitely wrong."""
        unavoidable = max(self.rounding, self.resolution)
        if not math.isfinite(self.error):
            rho = relative = math.inf
        elif self.error == 0:
            rho = relative = 0.0
        else:
            rho = math.sqrt(self.error / unavoidable) if unavoidable else math.inf
            relative = math.sqrt(self.error / self.size) if self.size else math.inf
        freedom = FREEDOM * self.rounding * (self.rounding / self.rounding_fourth) if self.rounding_fourth else math.inf
        error_class = classify(rho, slack(freedom, cells))
        if self.worst_row is not None and error_class != "wrong":
            many = cells * max(self.rows, 1)
            if any(rho > CLASSES[-1][0] * slack(freedom, many) for rho, freedom in self.suspects):
                error_class = "wrong"
        worst_row = None if self.worst_row is None else _rounded(self.worst_row)
        return TensorCheck(
            rho=_rounded(rho), relative_rms=_rounded(relative), error_class=error_class, worst_row=worst_row
        )


def _freedom_of_rows(ref: torch.Tensor) -> torch.Tensor:
    """The degrees of freedom of a row's squared rounding errors: few, where a few large elements outweigh the rest.

    What an element is rounded by is as large as its spacing to the next number of its dtype (Satterthwaite 1946).
    """
    exponents = torch.frexp(ref).exponent
    spacing = torch.where(ref == 0, 0.0, 4.0 ** (exponents - exponents.amax(1, keepdim=True)).double())
    counted = spacing.sum(1).square() / spacing.square().sum(1)
    return FREEDOM_PER_ELEMENT * counted.nan_to_num(nan=ref.shape[1]).clamp_min(1.0)


def classify(rho: float, slack: float = 1.0) -> ErrorClass:
    """The class of an error of rho times the unavoidable, where chance alone may multiply it by `slack`."""
    for bound, name in CLASSES:
        if rho <= bound * slack:
            return name
    return "wrong"


@lru_cache(maxsize=4096)
def slack(freedom: float, cells: int) -> float:
    """What rho may be multiplied by through chance: both of its sums scatter with `freedom` degrees, over `cells`."""
    if freedom > 1e9:
        return 1.0
    return 1 / math.sqrt(float(fdtri(freedom, freedom, ALPHA / cells)))  # F's upper tail is the lower one of 1 / F


def _rounded(figure: float) -> float:
    return float(f"{figure:.4g}")  # more digits than mean anything, few enough for a small file
