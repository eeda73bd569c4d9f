"""How far gradients are from fp64, in units of the unavoidable.

rho = rms(out - ref) / rms(unavoidable), where the unavoidable error of an element is that of rounding the reference
once to the output's dtype, or the resolution of fp32 arithmetic over the terms that make it up, whichever is larger in
rms. 1.00 is what a perfect computation with one final rounding reaches.
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from harness.cases import Grads, Inputs, NormCase, torch_dtype
from harness.records import ErrorClass, TensorCheck
from harness.verify.reference import Piece, pieces

GradName = Literal["dx", "dweight", "dbias"]

# Upper bounds of rho: k independent roundings beyond the last one give sqrt(1 + k), that is 1, 1.41, 1.73 and 2. Three
# is what a library documents that saves y and rounds every step of it; accumulation in low precision starts above.
CLASSES: tuple[tuple[float, ErrorClass], ...] = (
    (1.05, "exact"),
    (1.5, "one extra rounding"),
    (1.8, "two"),
    (2.1, "three"),
)

FP32_RESOLUTION = 2.0**-24
# An fp32 backward rounds half a dozen times on the way to an element: statistics, xhat, products, differences.
FP32_ROUNDINGS = 2.0


def expected(case: NormCase) -> list[GradName]:
    """The gradients that a case has, dx first."""
    has: dict[GradName, bool] = {"dx": True, "dweight": case.weight, "dbias": case.bias}
    return [name for name, here in has.items() if here]


def malformed(inputs: Inputs, grads: object) -> str | None:
    """Say what is missing, misshapen or of the wrong type in the gradients, or None.

    A wider dtype than asked for (fp32) is accepted and rounded before it is judged: the same yardstick for all.
    """
    if not isinstance(grads, Grads):
        return f"the backward returned {type(grads).__name__}, not Grads"
    case = inputs.case
    for name in expected(case):
        tensor = getattr(grads, name)
        shape = (case.rows, case.cols) if name == "dx" else (case.cols,)
        dtype = torch_dtype(case.dtype if name == "dx" else case.weight_dtype)
        if type(tensor) is not torch.Tensor:
            return (
                f"{name} is missing" if tensor is None else f"{name} is a {type(tensor).__name__}, not a plain tensor"
            )
        if tuple(tensor.shape) != shape:
            return f"{name} has shape {tuple(tensor.shape)} instead of {shape}"
        if tensor.dtype not in (dtype, torch.float32):
            return f"{name} is {tensor.dtype} instead of {dtype}"
        if tensor.device.type != case.device:
            return f"{name} is on {tensor.device}"
    return None


def check(inputs: Inputs, grads: Grads) -> dict[GradName, TensorCheck]:
    """Compare every gradient of the case in full with the fp64 reference; `inputs.dy` must be the original one."""
    case = inputs.case
    dx = _Sums()
    totals: dict[str, torch.Tensor] = {}
    for piece in pieces(inputs):
        dx.add(grads.dx[piece.rows], piece.dx, piece.dx_terms, torch_dtype(case.dtype), depth=1)
        _accumulate(totals, piece)
    checks: dict[GradName, TensorCheck] = {"dx": dx.judge()}
    for name in expected(case)[1:]:
        sums = _Sums()
        if totals:
            dtype = torch_dtype(case.weight_dtype)
            sums.add(getattr(grads, name), totals[name], totals[f"{name}_terms"], dtype, depth=case.rows)
        elif getattr(grads, name).count_nonzero() > 0:  # no rows: the gradient of nothing is zero
            sums.error = math.inf
        checks[name] = sums.judge()
    return checks


def _accumulate(totals: dict[str, torch.Tensor], piece: Piece) -> None:
    for name in ("dweight", "dweight_terms", "dbias", "dbias_terms"):
        share = getattr(piece, name)
        totals[name] = totals[name] + share if name in totals else share


class _Sums:
    """Squared errors of one gradient, added up piece by piece."""

    def __init__(self) -> None:
        self.error = 0.0
        self.rounding = 0.0
        self.resolution = 0.0
        self.size = 0.0

    def add(self, out: torch.Tensor, ref: torch.Tensor, terms: torch.Tensor, dtype: torch.dtype, depth: int) -> None:
        """Add a piece; `depth` is how many terms the arithmetic sums up, whose tree is its logarithm deep."""
        tree = math.sqrt(max(1.0, math.log2(max(depth, 1))))
        self.error += _square_sum(out.to(dtype).double() - ref)
        self.rounding += _square_sum(ref.to(dtype).double() - ref)
        self.resolution += _square_sum(terms * (FP32_ROUNDINGS * FP32_RESOLUTION * tree))
        self.size += _square_sum(ref)

    def judge(self) -> TensorCheck:
        """Rho and its class; a NaN or Inf where the reference is finite is infinitely wrong."""
        unavoidable = max(self.rounding, self.resolution)
        if not math.isfinite(self.error):
            rho = relative = math.inf
        elif self.error == 0:
            rho = relative = 0.0
        else:
            rho = math.sqrt(self.error / unavoidable) if unavoidable else math.inf
            relative = math.sqrt(self.error / self.size) if self.size else math.inf
        return TensorCheck(rho=_rounded(rho), relative_rms=_rounded(relative), error_class=classify(rho))


def classify(rho: float) -> ErrorClass:
    """The class of an error of rho times the unavoidable."""
    for bound, name in CLASSES:
        if rho <= bound:
            return name
    return "wrong"


def _rounded(figure: float) -> float:
    return float(f"{figure:.4g}")  # more digits than mean anything, few enough for a small file


def _square_sum(values: torch.Tensor) -> float:
    return float(values.square().sum())
