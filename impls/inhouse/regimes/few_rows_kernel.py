"""The kernel for few rows: one launch cuts the matrix both ways at once, and no program waits for another.

Some programs own a row each and write its dx. The others own columns, go over all rows, and write dweight and dbias.
None needs a result of another, because mean and rstd are given. x and dy are read twice, the second time from the L2
cache.
"""

# Triton compiles this file: kernel arguments have no Python type, and tl.range is not Python's.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from ..formula import (
    add_four,
    add_two,
    centred,
    factors,
    gated,
    input_gradient,
    load,
    load_extra,
    output_gradient,
    row_corrections,
    row_sums_of,
    rows_at,
    store,
    store_input_gradients,
    through_gate,
)


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
    extra,  # tensors.py has its fields
    rows,
    cols,  # in units, as are the strides
    dy_stride,
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    HEADS: tl.constexpr,
    UNIT: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    ROW_C: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
):
    """The first programs have a row each, in K chunks of ROW_C columns; the others C columns, R rows at a time."""
    cols *= UNIT
    program = tl.program_id(0)
    strides = dy_stride, x_stride
    inputs = dy, x, mean, rstd
    if program < rows:
        input_of_row(dx, inputs, weight, extra, program, cols, strides, ZERO_CENTRED, HEADS, UNIT, K, ROW_C, EVEN)
    elif dweight is not None:  # else there is no such program, and nothing to compile
        col = (program - rows) * C + tl.arange(0, C)[None, :]
        parameters_of_columns(dweight, dbias, inputs, extra, col, rows, cols, strides, HEADS, UNIT, R, C, STAGES)


@triton.jit
def input_of_row(
    dx,
    inputs,
    weight,
    extra,
    row,
    cols,
    strides,
    ZERO_CENTRED: tl.constexpr,
    HEADS: tl.constexpr,
    UNIT: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    EVEN: tl.constexpr,
):
    """The dx of one row, which stays in registers from its sums to its dx."""
    dy, x, mean, rstd = inputs
    dy_stride, x_stride = strides
    row = row.to(tl.int64)
    row_rstd = tl.load(rstd + row)
    row_mean = None
    if mean is not None:
        row_mean = tl.load(mean + row)
    row_tiles = ()
    sum_g = tl.zeros([1, C], tl.float32)
    sum_g_centred = tl.zeros([1, C], tl.float32)
    for k in tl.static_range(K):
        col = k * C + tl.arange(0, C)[None, :]
        raw_dy = load(dy + rows_at(row, dy_stride, extra.dy_head_stride, HEADS, UNIT) + col, col < cols, EVEN)
        dy_tile = raw_dy.to(tl.float32)
        raw_x = load(x + rows_at(row, x_stride, extra.x_head_stride, HEADS, UNIT) + col, col < cols, EVEN)
        dy1_tile = load_extra(extra.dy1, row, extra.dy1_stride, col, col < cols, EVEN, UNIT)
        z_tile = load_extra(extra.z, row, extra.z_stride, col, col < cols, EVEN, UNIT)
        dy_tile, x_tile = gated(dy_tile, raw_x, z_tile, extra.norm_first)
        x_tile = centred(x_tile, row_mean)
        multiplier = factors(weight, col, cols, ZERO_CENTRED, EVEN)
        multiplier1 = factors(extra.weight1, col, cols, ZERO_CENTRED, EVEN)
        g = output_gradient(dy_tile, multiplier, dy1_tile, multiplier1)
        sum_g += g
        sum_g_centred += g * x_tile
        row_tiles = row_tiles + ((g, x_tile, raw_dy, raw_x, z_tile),)
    sum_g, sum_g_centred = row_sums_of(sum_g, sum_g_centred, mean is not None)
    of_xhat, of_one = row_corrections(sum_g, sum_g_centred, row_rstd, 1.0 / cols)
    for k in tl.static_range(K):
        col = k * C + tl.arange(0, C)[None, :]
        xhat = row_tiles[k][1] * row_rstd
        dx_tile = input_gradient(row_tiles[k][0], xhat, row_rstd, of_xhat, of_one, mean is not None)
        if extra.z is not None:
            multiplier = factors(weight, col, cols, ZERO_CENTRED, EVEN)
            bias = factors(extra.bias, col, cols, False, EVEN)
            dx_tile, dz_tile = through_gate(
                dx_tile, row_tiles[k][2], row_tiles[k][3], row_tiles[k][4], xhat, multiplier, bias, extra.norm_first
            )
            store(extra.dz + row * cols + col, dz_tile, col < cols, EVEN)
        store_input_gradients(dx + row * cols + col, dx_tile, extra, row, col, cols, col < cols, EVEN, UNIT)


@triton.jit
def parameters_of_columns(
    dweight,
    dbias,
    inputs,
    extra,
    col,
    rows,
    cols,
    strides,
    HEADS: tl.constexpr,
    UNIT: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradients of C columns, summed over all rows; two or four are exchanged between warps at once."""
    dy, x, mean, rstd = inputs
    dy_stride, x_stride = strides
    of_weight = tl.zeros([R, C], tl.float32)
    of_bias = tl.zeros([R, C], tl.float32)
    of_weight1 = tl.zeros([R, C], tl.float32)
    of_bias1 = tl.zeros([R, C], tl.float32)
    for first in tl.range(0, rows, R, num_stages=STAGES):
        row = first + tl.arange(0, R).to(tl.int64)[:, None]
        inside = (row < rows) & (col < cols)
        dy_rows = dy + rows_at(row, dy_stride, extra.dy_head_stride, HEADS, UNIT)
        dy_tile = tl.load(dy_rows + col, mask=inside, other=0.0).to(tl.float32)
        x_tile = tl.load(x + rows_at(row, x_stride, extra.x_head_stride, HEADS, UNIT) + col, mask=inside, other=0.0)
        dy1_tile = load_extra(extra.dy1, row, extra.dy1_stride, col, inside, False, UNIT)
        z_tile = load_extra(extra.z, row, extra.z_stride, col, inside, False, UNIT)
        dy_tile, x_tile = gated(dy_tile, x_tile, z_tile, extra.norm_first)
        row_rstd = tl.load(rstd + row, mask=row < rows, other=0.0)
        row_mean = None
        if mean is not None:
            row_mean = tl.load(mean + row, mask=row < rows, other=0.0)
        xhat = centred(x_tile, row_mean) * row_rstd
        of_weight += dy_tile * xhat
        if dbias is not None:
            of_bias += dy_tile
        if extra.dy1 is not None:
            of_weight1 += dy1_tile[0].to(tl.float32) * xhat
        if extra.dbias1 is not None:
            of_bias1 += dy1_tile[0].to(tl.float32)
    if extra.dbias1 is not None:
        sums = tl.reduce((of_weight, of_bias, of_weight1, of_bias1), 0, add_four, keep_dims=True)
        of_weight, of_bias, of_weight1, of_bias1 = sums
    elif dbias is not None:
        of_weight, of_bias = tl.reduce((of_weight, of_bias), 0, add_two, keep_dims=True)
    elif extra.dweight1 is not None:
        of_weight, of_weight1 = tl.reduce((of_weight, of_weight1), 0, add_two, keep_dims=True)
    else:
        of_weight = tl.sum(of_weight, 0, keep_dims=True)
    if dbias is not None:
        store(dbias + col, of_bias, col < cols, False)
    store(dweight + col, of_weight, col < cols, False)
    if extra.dweight1 is not None:
        store(extra.dweight1 + col, of_weight1, col < cols, False)
    if extra.dbias1 is not None:
        store(extra.dbias1 + col, of_bias1, col < cols, False)
