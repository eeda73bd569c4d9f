"""The gradients in fp64, from the same quantised inputs, in pieces of rows so that huge cases fit.

    xhat = (x - mean) * rstd            RMS: x * rstd
    wdy = dy * weight                   zero-centred: dy * (1 + weight)
    dx = rstd * (wdy - mean_c(wdy) - xhat * mean_c(wdy * xhat))     RMS: without mean_c(wdy)
    dweight = sum_r(dy * xhat), dbias = sum_r(dy)

Inputs that the table of tensors says are added to a gradient are added last.

Ba, Kiros, Hinton 2016 (LayerNorm); Zhang, Sennrich 2019 (RMSNorm).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from harness.cases import Inputs, row_chunks, statistics
from harness.cases.tensors import inputs_of


@dataclass(frozen=True)
class Exact:
    """A gradient in fp64.

    `terms` is the sum of the absolute terms of each element, the scale of unavoidable fp32 rounding; x - mean is two of
    them, since an fp32 mean is what a forward saves.
    """

    values: torch.Tensor
    terms: torch.Tensor

    def __add__(self, other: Exact) -> Exact:
        return Exact(self.values + other.values, self.terms + other.terms)


@dataclass(frozen=True)
class Piece:
    """The gradients on some rows: `(n, cols)`, or this piece's share of a sum over rows `(cols)`.

    `spoilt` `(n)` marks rows of which an activation holds a NaN or Inf.
    """

    rows: slice
    gradients: dict[str, Exact]
    spoilt: torch.Tensor


def pieces(inputs: Inputs) -> Iterator[Piece]:
    """The reference of a case, piece by piece; summed over pieces, the gradients of parameters are whole."""
    for rows in row_chunks(inputs.case):
        yield reference(inputs, rows)


def reference(inputs: Inputs, rows: slice) -> Piece:
    """The reference on the given rows, with mean and rstd computed in fp64 from x."""
    case = inputs.case
    tensors = inputs.tensors()
    activations = {
        tensor.name: as_rows(tensors[tensor.name])[rows].double()
        for tensor in inputs_of(case)
        if tensor.extent == "activation"
    }
    x, dy = activations["x"], activations["dy"]
    mean, rstd = statistics(x, case)
    rstd = rstd[:, None]
    xhat = (x if mean is None else x - mean[:, None]) * rstd
    xhat_terms = xhat.abs() if mean is None else (x.abs() + mean[:, None].abs()) * rstd
    wdy = dy
    if inputs.weight is not None:
        wdy = dy * (inputs.weight.double() + float(case.zero_centred))
    mean_wdy_xhat = (wdy * xhat).mean(1, keepdim=True)
    centre = wdy.mean(1, keepdim=True) if case.norm == "layer" else torch.zeros_like(rstd)
    gradients = {
        "dx": Exact(
            rstd * (wdy - centre - xhat * mean_wdy_xhat),
            # An error of the mean moves xhat, and by way of mean_c(wdy) the mean of wdy * xhat as well.
            rstd * (wdy.abs() + centre.abs() + xhat_terms * (mean_wdy_xhat.abs() + xhat.abs() * centre.abs())),
        ),
        "dweight": Exact((dy * xhat).sum(0), (dy.abs() * xhat_terms).sum(0)),
        "dbias": Exact(dy.sum(0), dy.abs().sum(0)),
    }
    for tensor in inputs_of(case):
        if tensor.added_to is not None:
            addend = activations[tensor.name]
            gradients[tensor.added_to] += Exact(addend, addend.abs())
    finite = [activation.isfinite().all(1) for activation in activations.values()]
    return Piece(rows, gradients, ~torch.stack(finite).all(0))


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers as `(rows, cols)`, whatever the leading dimensions are."""
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])
