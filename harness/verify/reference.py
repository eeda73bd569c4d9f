"""The gradients in fp64, from the same quantised inputs, in pieces of rows so that huge cases fit.

    xhat = (x - mean) * rstd            RMS: x * rstd
    wdy = dy * weight                   zero-centred: dy * (1 + weight)
    dx = rstd * (wdy - mean_c(wdy) - xhat * mean_c(wdy * xhat))     RMS: without mean_c(wdy)
    dweight = sum_r(dy * xhat), dbias = sum_r(dy)

Ba, Kiros, Hinton 2016 (LayerNorm); Zhang, Sennrich 2019 (RMSNorm).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from harness.cases import Inputs, row_chunks, statistics


@dataclass(frozen=True)
class Piece:
    """The reference on some rows, all fp64: dx `(n, cols)`; this piece's share of dweight and dbias `(cols)`.

    The `_terms` are the sums of the absolute terms of each element, the scale of unavoidable fp32 rounding; x - mean is
    two of them, since an fp32 mean is what a forward saves. `spoilt` `(n)` marks rows whose x or dy holds a NaN or Inf.
    """

    rows: slice
    dx: torch.Tensor
    dx_terms: torch.Tensor
    dweight: torch.Tensor
    dweight_terms: torch.Tensor
    dbias: torch.Tensor
    dbias_terms: torch.Tensor
    spoilt: torch.Tensor


def pieces(inputs: Inputs) -> Iterator[Piece]:
    """The reference of a case, piece by piece; summed over pieces, dweight and dbias are whole."""
    for rows in row_chunks(inputs.case):
        yield reference(inputs, rows)


def reference(inputs: Inputs, rows: slice) -> Piece:
    """The reference on the given rows, with mean and rstd computed in fp64 from x."""
    case = inputs.case
    x, dy = as_rows(inputs.x)[rows].double(), as_rows(inputs.dy)[rows].double()
    mean, rstd = statistics(x, case)
    rstd = rstd[:, None]
    xhat = (x if mean is None else x - mean[:, None]) * rstd
    xhat_terms = xhat.abs() if mean is None else (x.abs() + mean[:, None].abs()) * rstd
    wdy = dy
    if inputs.weight is not None:
        wdy = dy * (inputs.weight.double() + float(case.zero_centred))
    mean_wdy_xhat = (wdy * xhat).mean(1, keepdim=True)
    projection = xhat * mean_wdy_xhat
    centre = wdy.mean(1, keepdim=True) if case.norm == "layer" else torch.zeros_like(rstd)
    product = dy * xhat
    return Piece(
        rows=rows,
        dx=rstd * (wdy - centre - projection),
        # An error of the mean moves xhat, and by way of mean_c(wdy) the mean of wdy * xhat as well.
        dx_terms=rstd * (wdy.abs() + centre.abs() + xhat_terms * (mean_wdy_xhat.abs() + xhat.abs() * centre.abs())),
        dweight=product.sum(0),
        dweight_terms=(dy.abs() * xhat_terms).sum(0),
        dbias=dy.sum(0),
        dbias_terms=dy.abs().sum(0),
        spoilt=~(x.isfinite().all(1) & dy.isfinite().all(1)),
    )


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers as `(rows, cols)`, whatever the leading dimensions are."""
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])
