"""The kernel for few rows: one launch cuts the matrix both ways at once, and no program waits for another.

Some programs own a row each and write its dx. The others own columns, go over all rows, and write dweight and dbias.
None needs a result of another, because mean and rstd are given. x and dy are read twice, the second time from the L2
cache.
"""

# Triton compiles this file: kernel arguments have no Python type, and tl.range is not Python's.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from ..formula import add_two, centred, factor, input_gradient, load, row_corrections, row_sums_of, store


@triton.jit
def backward_few(
    dx,  # (rows, cols), contiguous
    dweight,
    dbias,
    dy,
    x,
    weight,
    mean,
    rstd,
    rows,
    cols,
    dy_stride,
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    ROW_C: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
):
    """The first programs have a row each, in K chunks of ROW_C columns; the others C columns, R rows at a time."""
    program = tl.program_id(0)
    if program < rows:
        input_of_row(dx, dy, x, weight, mean, rstd, program, cols, dy_stride, x_stride, ZERO_CENTRED, K, ROW_C, EVEN)
    elif dweight is not None:  # else there is no such program, and nothing to compile
        col = (program - rows) * C + tl.arange(0, C)[None, :]
        parameters_of_columns(dweight, dbias, dy, x, mean, rstd, col, rows, cols, dy_stride, x_stride, R, C, STAGES)


@triton.jit
def input_of_row(
    dx,
    dy,
    x,
    weight,
    mean,
    rstd,
    row,
    cols,
    dy_stride,
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    EVEN: tl.constexpr,
):
    """The dx of one row, which stays in registers from its sums to its dx."""
    row = row.to(tl.int64)
    row_rstd = tl.load(rstd + row)
    row_mean = None
    if mean is not None:
        row_mean = tl.load(mean + row)
    gs = ()
    xs = ()
    sum_g = tl.zeros([1, C], tl.float32)
    sum_g_centred = tl.zeros([1, C], tl.float32)
    for k in tl.static_range(K):
        col = k * C + tl.arange(0, C)[None, :]
        g = load(dy + row * dy_stride + col, col < cols, EVEN).to(tl.float32)
        x_tile = centred(load(x + row * x_stride + col, col < cols, EVEN), row_mean)
        if weight is not None:
            g *= factor(load(weight + col, col < cols, EVEN), ZERO_CENTRED)
        sum_g += g
        sum_g_centred += g * x_tile
        gs = gs + (g,)
        xs = xs + (x_tile,)
    sum_g, sum_g_centred = row_sums_of(sum_g, sum_g_centred, mean is not None)
    of_xhat, of_one = row_corrections(sum_g, sum_g_centred, row_rstd, 1.0 / cols)
    for k in tl.static_range(K):
        col = k * C + tl.arange(0, C)[None, :]
        dx_tile = input_gradient(gs[k], xs[k] * row_rstd, row_rstd, of_xhat, of_one, mean is not None)
        store(dx + row * cols + col, dx_tile, col < cols, EVEN)


@triton.jit
def parameters_of_columns(
    dweight,
    dbias,
    dy,
    x,
    mean,
    rstd,
    col,
    rows,
    cols,
    dy_stride,
    x_stride,
    R: tl.constexpr,
    C: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradients of C columns, summed over all rows; both are exchanged between warps at once."""
    of_weight = tl.zeros([R, C], tl.float32)
    of_bias = tl.zeros([R, C], tl.float32)
    for first in tl.range(0, rows, R, num_stages=STAGES):
        row = first + tl.arange(0, R).to(tl.int64)[:, None]
        inside = (row < rows) & (col < cols)
        dy_tile = tl.load(dy + row * dy_stride + col, mask=inside, other=0.0).to(tl.float32)
        x_tile = tl.load(x + row * x_stride + col, mask=inside, other=0.0)
        row_rstd = tl.load(rstd + row, mask=row < rows, other=0.0)
        row_mean = None
        if mean is not None:
            row_mean = tl.load(mean + row, mask=row < rows, other=0.0)
        of_weight += dy_tile * (centred(x_tile, row_mean) * row_rstd)
        if dbias is not None:
            of_bias += dy_tile
    if dbias is not None:
        of_weight, of_bias = tl.reduce((of_weight, of_bias), 0, add_two, keep_dims=True)
        store(dbias + col, of_bias, col < cols, False)
    else:
        of_weight = tl.sum(of_weight, 0, keep_dims=True)
    store(dweight + col, of_weight, col < cols, False)
