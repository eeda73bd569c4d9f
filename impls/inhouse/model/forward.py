"""The forward of both norms: one program a row, and the statistics that the backward takes.

    total = residual + mask * x / (1 - p) + mask1 * x1 / (1 - p)      what of these there is; else x
    mean  = mean_c(total)                                             LayerNorm alone
    rstd  = 1 / sqrt(mean_c((total - mean)^2) + eps)
    y     = (total - mean) * rstd * weight + bias
    y1    = (total - mean) * rstd * weight1 + bias1

With a gate y is multiplied by silu(z), or with `norm_before_gate` False total is, before all that follows. total is
rounded as it is stored, so that the backward sees the numbers that were normalised.

The variance is that of centred numbers, in a pass of its own, so that a large mean costs no digits. It is here so that
a model can be built on the backward; it is not what this project measures.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from .. import bound
from ..formula import factor
from ..graph_memory import beside_captures
from ..launch import KernelCall, power_of_two
from ..tensors import as_rows, check, output, rounded, rows_or_heads, unit_of
from .operands import LIKE_X, NormOptions, Operands, Outputs

WIDEST_CHUNK = 8192  # columns that one program holds at once; a wider row is read once for each of the three steps


def norm_forward(operands: Operands, options: NormOptions) -> Outputs:
    """Return y, y1 and total like x, contiguous, and mean, rstd `(rows)` fp32; None where there is no such.

    x, bf16, fp16 or fp32, has unit column stride and rows at any distance, or more leading dimensions that can be
    viewed as rows, or as heads of tokens; what else there is as `Operands` says, in x's dtype, parameters in any of the
    three. Raises ValueError for anything else, as `norm_backward` does.
    """
    kept: Any = bound.restart(operands.given, "forward", options)
    return _decided(operands, options) if kept is None else Outputs(*kept)


@beside_captures()
def _decided(operands: Operands, options: NormOptions) -> Outputs:
    """The outputs by a launch that is decided now, and kept for calls like this one."""
    x, z = operands.x, operands.z
    check_operands(operands, options)
    cols = x.shape[-1]
    (taken,) = rows_or_heads(x=x)
    rows = taken.shape[:-1].numel()
    written = empty_outputs(operands, options, output)
    if rows:
        chunk = min(power_of_two(cols), WIDEST_CHUNK)
        heads, head_stride = (taken.shape[1], taken.stride(1)) if taken.dim() == 3 else (1, 0)
        z_stride = 0 if z is None else as_rows(z, "z").stride(0)
        unit = unit_of(cols, taken.stride(0), head_stride, z_stride)
        call = KernelCall(
            forward_row,
            (rows,),
            *written,
            *(each.view(torch.uint8) if each is not None and each.dtype == torch.bool else each for each in operands),
            cols // unit,
            heads,
            taken.stride(0) // unit,
            head_stride // unit,
            z_stride // unit,
            options.eps,
            1 / (1 - options.dropout_p),
            ZERO_CENTRED=options.zero_centred,
            UNIT=unit,
            GATE_FIRST=z is not None and not options.norm_before_gate,
            GATE_BEHIND=z is not None and options.norm_before_gate,
            C=chunk,
            num_warps=min(8, max(1, chunk // 512)),
        )
        with torch.cuda.device_of(x):
            kernel = call.start()
        bound.keep([call], [kernel], operands.given, written, (), "forward", options)
    y, y1, total, mean, rstd = written
    return Outputs(rounded(y, x), rounded(y1, x), rounded(total, x), mean, rstd)


def empty_outputs(operands: Operands, options: NormOptions, make: Callable[..., torch.Tensor]) -> Outputs:
    """Memory for what a forward writes; `make(x, shape)` is of what has x's shape.

    These are no views of rows: FSDP warns of modules that return views.
    """
    x = operands.x
    are_there = True, operands.weight1 is not None, operands.is_sum
    y, y1, total = (make(x, x.shape) if is_there else None for is_there in are_there)
    assert y is not None
    rstd = torch.empty(math.prod(x.shape[:-1]), dtype=torch.float32, device=x.device)
    return Outputs(y, y1, total, torch.empty_like(rstd) if options.layer else None, rstd)


def heads_apart(x: torch.Tensor) -> bool:
    """Whether x's rows are heads of tokens: at one distance within a token, and tokens at another."""
    shape, strides = x.shape, x.stride()
    if not x.numel():
        return False
    apart = [place for place in range(x.dim() - 2) if strides[place] != strides[place + 1] * shape[place + 1]]
    return apart == [x.dim() - 3]


def check_operands(operands: Operands, options: NormOptions) -> None:
    """Raise ValueError, with the reason, for what the kernels do not take or what does not fit together."""
    x, weight, bias, _, _, _, _, weight1, bias1, z = operands
    like_x = {name: each for name, each in operands._asdict().items() if name in LIKE_X and each is not None}
    for name, each in like_x.items():
        if each.shape != x.shape:
            raise ValueError(f"{name} must have x's shape {tuple(x.shape)}, not {tuple(each.shape)}")
        if each is not z and not each.is_contiguous():
            raise ValueError(f"{name} must be contiguous, not {each.stride()}")
    if bias1 is not None and (weight1 is None or bias is None):
        raise ValueError("bias1 needs weight1, and a bias of the first norm")
    if weight1 is not None and (weight is None or (bias is None) != (bias1 is None) or z is not None):
        raise ValueError("weight1 needs a weight, bias1 where there is a bias, and no gate")
    if not 0 <= options.dropout_p < 1:
        raise ValueError(f"dropout_p must be at least 0 and below 1, not {options.dropout_p}")
    matrices = {name: as_rows(each, name) for name, each in like_x.items() if not name.startswith("mask")}
    check(
        {"x": rows_or_heads(x=x)[0]} | matrices,
        {"weight": weight, "bias": bias, "weight1": weight1, "bias1": bias1},
        has_bias=bias is not None,
        zero_centred=options.zero_centred,
    )


@triton.jit
def forward_row(
    y,
    y1,
    total,
    mean,
    rstd,
    x,
    weight,
    bias,
    residual,
    mask,
    x1,
    mask1,
    weight1,
    bias1,
    z,
    cols,  # in units, as are the strides
    heads,
    x_stride,
    head_stride,
    z_stride,
    eps,
    kept,
    ZERO_CENTRED: tl.constexpr,
    UNIT: tl.constexpr,
    GATE_FIRST: tl.constexpr,
    GATE_BEHIND: tl.constexpr,
    C: tl.constexpr,
):
    """One row a program, C columns at a time."""
    cols *= UNIT
    row = tl.program_id(0).to(tl.int64)
    x_row = x + row // heads * (x_stride * UNIT) + row % heads * (head_stride * UNIT)
    at = row * cols
    z_row = None if z is None else z + row * (z_stride * UNIT)
    added = (residual, mask, x1, mask1, total)
    row_mean = 0.0
    if mean is not None:
        sums = tl.zeros([C], tl.float32)
        for start in range(0, cols, C):
            col = start + tl.arange(0, C)
            sums += normalised(x_row, col, cols, at, added, kept, z_row, GATE_FIRST)
        row_mean = tl.sum(sums) / cols
        tl.store(mean + row, row_mean)
    sums = tl.zeros([C], tl.float32)
    for start in range(0, cols, C):
        col = start + tl.arange(0, C)
        centred = normalised(x_row, col, cols, at, added, kept, z_row, GATE_FIRST) - row_mean
        sums += tl.where(col < cols, centred * centred, 0.0)
    row_rstd = 1.0 / tl.sqrt_rn(tl.sum(sums) / cols + eps)
    tl.store(rstd + row, row_rstd)
    for start in range(0, cols, C):
        col = start + tl.arange(0, C)
        inside = col < cols
        if total is not None:
            value = sum_of(x_row, col, cols, at, added, kept)
            tl.store(total + at + col, value.to(total.dtype.element_ty), mask=inside)
        xhat = (normalised(x_row, col, cols, at, added, kept, z_row, GATE_FIRST) - row_mean) * row_rstd
        value = scaled(xhat, weight, bias, col, cols, ZERO_CENTRED)
        if GATE_BEHIND:
            value *= silu(tl.load(z_row + col, mask=inside, other=0.0).to(tl.float32))
        tl.store(y + at + col, value.to(y.dtype.element_ty), mask=inside)
        if y1 is not None:
            value = scaled(xhat, weight1, bias1, col, cols, ZERO_CENTRED)
            tl.store(y1 + at + col, value.to(y1.dtype.element_ty), mask=inside)


@triton.jit
def normalised(x_row, col, cols, at, added, kept, z_row, GATE_FIRST):
    """What the statistics are of, fp32 and 0 past the end of a row."""
    value = sum_of(x_row, col, cols, at, added, kept)
    if GATE_FIRST:
        value *= silu(tl.load(z_row + col, mask=col < cols, other=0.0).to(tl.float32))
    return value


@triton.jit
def sum_of(x_row, col, cols, at, added, kept):
    """Add up x and what is added to it, rounded as `total` stores it."""
    residual, mask, x1, mask1, total = added
    inside = col < cols
    value = dropped(tl.load(x_row + col, mask=inside, other=0.0), mask, at + col, inside, kept)
    if x1 is not None:
        value += dropped(tl.load(x1 + at + col, mask=inside, other=0.0), mask1, at + col, inside, kept)
    if residual is not None:
        value += tl.load(residual + at + col, mask=inside, other=0.0).to(tl.float32)
    if total is not None:
        value = value.to(x_row.dtype.element_ty).to(tl.float32)
    return value


@triton.jit
def dropped(branch, mask, place, inside, kept):
    """A branch in fp32, after its dropout if it has one."""
    value = branch.to(tl.float32)
    if mask is not None:
        value *= tl.where(tl.load(mask + place, mask=inside, other=0) != 0, kept, 0.0)  # so that no NaN is dropped
    return value


@triton.jit
def scaled(xhat, weight, bias, col, cols, ZERO_CENTRED):
    value = xhat
    if weight is not None:
        value *= factor(tl.load(weight + col, mask=col < cols, other=0.0), ZERO_CENTRED)
    if bias is not None:
        value += tl.load(bias + col, mask=col < cols, other=0.0).to(tl.float32)
    return value


@triton.jit
def silu(z):
    return z / (1.0 + tl.exp(-z))
