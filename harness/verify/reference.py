"""The gradients in fp64, from the same quantised inputs, in pieces of rows so that huge cases fit.

    xhat = (x - mean) * rstd            RMS: x * rstd
    wdy = dy * weight                   zero-centred: dy * (1 + weight)
    J(wdy) = rstd * (wdy - mean_c(wdy) - xhat * mean_c(wdy * xhat))     RMS: without mean_c(wdy)
    dx = J(wdy), dweight = sum_r(dy * xhat), dbias = sum_r(dy)

Two parallel norms of one x have one xhat: dx = J(dy * weight + dy1 * weight1). A gate multiplies by
silu(z) = z * sigmoid(z), with silu'(z) = sigmoid(z) * (1 + z * (1 - sigmoid(z))):

    gated              x * silu(z) takes the place of x:  dx = J * silu(z),  dz = J * x * silu'(z)
    gated-norm-first   dy * silu(z) takes that of dy:     dx = J,            dz = dy * (xhat * weight + bias) * silu'(z)

Inputs that the table of tensors says are added to a gradient are added last. Dropout hands that sum on to the branches
that it dropped elements of: dbranch = dx * mask / (1 - p).

Ba, Kiros, Hinton 2016 (LayerNorm); Zhang, Sennrich 2019 (RMSNorm); Dao, Gu 2024 (gated, Mamba-2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from harness.cases import Inputs, NormCase, row_chunks, statistics
from harness.cases.tensors import gradients_of, inputs_of

LEAST_LEFT = 16  # a reference is kept where it takes at most one part in so many of the free memory
MOST_HOST_BYTES = 1 << 28


@dataclass(frozen=True)
class Exact:
    """A gradient in fp64.

    `terms` is the sum of the absolute terms of each element, the scale of unavoidable fp32 rounding; x - mean is two of
    them, since an fp32 mean is what a forward saves.
    """

    values: torch.Tensor
    terms: torch.Tensor

    @classmethod
    def given(cls, tensor: torch.Tensor) -> Exact:
        """An input, which is one term."""
        values = tensor.double()
        return cls(values, values.abs())

    def __add__(self, other: Exact) -> Exact:
        return Exact(self.values + other.values, self.terms + other.terms)

    def __mul__(self, other: Exact) -> Exact:
        return Exact(self.values * other.values, self.terms * other.terms)

    def scaled(self, factor: float) -> Exact:
        """The product with a positive number."""
        return Exact(self.values * factor, self.terms * factor)

    def over_rows(self) -> Exact:
        """The sum over rows `(cols)`."""
        return Exact(self.values.sum(0), self.terms.sum(0))


@dataclass(frozen=True)
class Piece:
    """The gradients on some rows: `(n, cols)`, or this piece's share of a sum over rows `(cols)`.

    `spoilt` `(n)` marks rows of which an activation, or any parameter, holds a NaN or Inf.
    """

    rows: slice
    gradients: dict[str, Exact]
    spoilt: torch.Tensor


def pieces(inputs: Inputs) -> Iterator[Piece]:
    """The reference of a case, piece by piece; summed over pieces, the gradients of parameters are whole."""
    for rows in row_chunks(inputs.case):
        yield reference(inputs, rows)


def kept_pieces(inputs: Inputs) -> tuple[Piece, ...]:
    """The whole reference, to be compared with all that are tried on these inputs; empty where it is too large to keep.

    It may be one piece, and take a small share of the memory.
    """
    case = inputs.case
    activations = sum(gradient.extent == "activation" for gradient in gradients_of(case))
    room_bytes = torch.cuda.mem_get_info()[0] // LEAST_LEFT if case.device != "cpu" else MOST_HOST_BYTES
    fits = 2 * 8 * case.rows * case.cols * activations <= room_bytes  # values and terms, in fp64
    return tuple(pieces(inputs)) if fits and len(row_chunks(case)) == 1 else ()


def reference(inputs: Inputs, rows: slice) -> Piece:
    """The reference on the given rows, with mean and rstd computed in fp64 from what is normalised."""
    case, drawn = inputs.case, _drawn(inputs, rows)
    one, norm_first = Exact.given(torch.ones((), device=inputs.x.device)), "gated-norm-first" in case.features
    silu, slope = _gate(drawn["z"].values) if "z" in drawn else (one, one)
    weight = drawn.get("weight", one)
    xhat, rstd = _normalised(drawn["x"] * silu if case.gate_first else drawn["x"], case)
    dy = drawn["dy"] * silu if norm_first else drawn["dy"]
    wdy = dy * weight
    gradients = {"dweight": (dy * xhat).over_rows(), "dbias": dy.over_rows()}
    if "dy1" in drawn:
        wdy += drawn["dy1"] * drawn.get("weight1", one)
        gradients |= {"dweight1": (drawn["dy1"] * xhat).over_rows(), "dbias1": drawn["dy1"].over_rows()}
    dx = _back_through(wdy, xhat, rstd, case)
    if case.gate_first:
        gradients["dz"] = dx * drawn["x"] * slope
        dx *= silu
    elif norm_first:
        y = xhat * weight
        gradients["dz"] = drawn["dy"] * (y + drawn["bias"] if "bias" in drawn else y) * slope
    gradients["dx"] = dx
    for tensor in inputs_of(case):
        if tensor.added_to is not None:
            gradients[tensor.added_to] += drawn[tensor.name]
    for mask, branch in (("mask", "dbranch"), ("mask1", "dbranch1")):
        if mask in drawn:
            gradients[branch] = gradients["dx"] * drawn[mask].scaled(1 / (1 - case.dropout_p))
    finite = [drawn[tensor.name].values.isfinite().all(-1).expand(len(rstd)) for tensor in inputs_of(case)]
    return Piece(rows, gradients, ~torch.stack(finite).all(0))


def _drawn(inputs: Inputs, rows: slice) -> dict[str, Exact]:
    """The drawn tensors as exact values: activations of these rows, and parameters as the norm multiplies by them."""
    case, tensors = inputs.case, inputs.tensors()
    drawn: dict[str, Exact] = {}
    for tensor in inputs_of(case):
        values = tensors[tensor.name]
        if tensor.extent == "activation":
            values = as_rows(values)[rows]
        elif case.zero_centred and tensor.name.startswith("weight"):
            values = values.double() + 1
        drawn[tensor.name] = Exact.given(values)
    return drawn


def _normalised(x: Exact, case: NormCase) -> tuple[Exact, torch.Tensor]:
    """xhat, and rstd as a column."""
    mean, rstd = statistics(x.values, case)
    rstd = rstd[:, None]
    if mean is None:
        return Exact(x.values * rstd, x.terms * rstd), rstd
    return Exact((x.values - mean[:, None]) * rstd, (x.terms + mean[:, None].abs()) * rstd), rstd


def _back_through(wdy: Exact, xhat: Exact, rstd: torch.Tensor, case: NormCase) -> Exact:
    """J(wdy), the gradient of what is normalised."""
    mean_wdy_xhat = (wdy.values * xhat.values).mean(1, keepdim=True)
    centre = wdy.values.mean(1, keepdim=True) if case.norm == "layer" else torch.zeros_like(rstd)
    return Exact(
        rstd * (wdy.values - centre - xhat.values * mean_wdy_xhat),
        # An error of the mean moves xhat, and by way of mean_c(wdy) the mean of wdy * xhat as well.
        rstd * (wdy.terms + centre.abs() + xhat.terms * (mean_wdy_xhat.abs() + xhat.values.abs() * centre.abs())),
    )


def _gate(z: torch.Tensor) -> tuple[Exact, Exact]:
    """silu(z) and silu'(z). An exp in fp32 has the error of its argument, which is as large as z."""
    sigmoid = z.sigmoid()
    silu, slope = z * sigmoid, sigmoid * (1 + z * (1 - sigmoid))
    return Exact(silu, silu.abs() * (1 + z.abs())), Exact(slope, sigmoid * (1 + z.abs()) ** 2)


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers as `(rows, cols)`, whatever the leading dimensions are."""
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])
