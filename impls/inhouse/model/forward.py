"""The forward of both norms: one program a row, and the statistics that the backward takes.

    mean = mean_c(x)                          LayerNorm alone
    rstd = 1 / sqrt(mean_c((x - mean)^2) + eps)
    y    = (x - mean) * rstd * weight + bias

The variance is that of centred numbers, in a pass of its own, so that a large mean costs no digits. It is here so that
a model can be built on the backward; it is not what this project measures.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .. import bound
from ..formula import factor
from ..launch import KernelCall, power_of_two
from ..tensors import as_rows, check, output, rounded

WIDEST_CHUNK = 8192  # columns that one program holds at once; a wider row is read once for each of the three steps


def norm_forward(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    *,
    layer: bool,
    zero_centred: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return y like x `(rows, cols)`, and mean, rstd `(rows)` fp32; mean is None for RMSNorm.

    x, bf16, fp16 or fp32, has unit column stride and rows at any distance, or more leading dimensions that can be
    viewed as rows; weight, bias `(cols)` contiguous, of any of these dtypes, or None. Raises ValueError for anything
    else, as `norm_backward` does.
    """
    given, shape = (x, weight, bias), x.shape
    decided_by = "forward", layer, eps, zero_centred
    outputs = bound.restart(given, *decided_by)
    if outputs is not None:
        y, mean, rstd = outputs
        assert y is not None
        assert rstd is not None
        return y, mean, rstd
    x = as_rows(x, "x")
    parameters = {"weight": weight, "bias": bias}
    check({"x": x}, parameters, has_bias=bias is not None, zero_centred=zero_centred)
    rows, cols = x.shape
    y = output(x, (rows, cols))
    mean = torch.empty(rows, dtype=torch.float32, device=x.device) if layer else None
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    if rows:
        chunk = min(power_of_two(cols), WIDEST_CHUNK)
        call = KernelCall(
            forward_row,
            (rows,),
            y,
            mean,
            rstd,
            x,
            weight,
            bias,
            cols,
            x.stride(0),
            eps,
            ZERO_CENTRED=zero_centred,
            C=chunk,
            num_warps=min(8, max(1, chunk // 512)),
        )
        with torch.cuda.device_of(x):
            kernel = call.start()
        bound.keep([call], [kernel], given, (y.view(shape), mean, rstd), (), *decided_by)
    return rounded(y.view(shape), x), mean, rstd


@triton.jit
def forward_row(
    y,
    mean,
    rstd,
    x,
    weight,
    bias,
    cols,
    x_stride,
    eps,
    ZERO_CENTRED: tl.constexpr,
    C: tl.constexpr,
):
    """One row a program, C columns at a time."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x + row * x_stride
    row_mean = 0.0
    if mean is not None:
        total = tl.zeros([C], tl.float32)
        for start in range(0, cols, C):
            col = start + tl.arange(0, C)
            total += tl.load(x_row + col, mask=col < cols, other=0.0).to(tl.float32)
        row_mean = tl.sum(total) / cols
        tl.store(mean + row, row_mean)
    total = tl.zeros([C], tl.float32)
    for start in range(0, cols, C):
        col = start + tl.arange(0, C)
        centred = tl.load(x_row + col, mask=col < cols, other=0.0).to(tl.float32) - row_mean
        total += tl.where(col < cols, centred * centred, 0.0)
    row_rstd = 1.0 / tl.sqrt_rn(tl.sum(total) / cols + eps)
    tl.store(rstd + row, row_rstd)
    for start in range(0, cols, C):
        col = start + tl.arange(0, C)
        value = (tl.load(x_row + col, mask=col < cols, other=0.0).to(tl.float32) - row_mean) * row_rstd
        if weight is not None:
            value *= factor(tl.load(weight + col, mask=col < cols, other=0.0), ZERO_CENTRED)
        if bias is not None:
            value += tl.load(bias + col, mask=col < cols, other=0.0).to(tl.float32)
        tl.store(y + row * cols + col, value.to(y.dtype.element_ty), mask=col < cols)
