"""The kernels of two passes: both sums of every row first, then tiles of any shape; x and dy are read twice."""

# Triton compiles this file: kernel arguments have no Python type, and tl.range is not Python's.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from ..formula import (
    centred,
    factors,
    gated,
    input_gradient,
    load,
    load_extra,
    output_gradient,
    over_rows,
    row_corrections,
    rows_at,
    store,
    store_input_gradients,
    through_gate,
)


@triton.jit
def row_sums(
    of_xhats,  # (rows) fp32
    of_ones,  # (rows) fp32; None for RMSNorm
    dy,
    x,
    weight,
    mean,
    rstd,
    extra,  # tensors.py has its fields
    cols,  # in units, as are the strides
    dy_stride,
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    HEADS: tl.constexpr,
    UNIT: tl.constexpr,
    C: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
):
    """First pass: the coefficients of dx that the sums of a row give, one row a program."""
    cols *= UNIT
    row = tl.program_id(0).to(tl.int64)
    row_rstd = tl.load(rstd + row)
    row_mean = None
    if mean is not None:
        row_mean = tl.load(mean + row)
    sum_g = tl.zeros([1, C], tl.float32)
    sum_g_centred = tl.zeros([1, C], tl.float32)
    for start in tl.range(0, cols, C, num_stages=STAGES):
        col = start + tl.arange(0, C)[None, :]
        dy_row = dy + rows_at(row, dy_stride, extra.dy_head_stride, HEADS, UNIT)
        dy_tile = load(dy_row + col, col < cols, EVEN).to(tl.float32)
        x_tile = load(x + rows_at(row, x_stride, extra.x_head_stride, HEADS, UNIT) + col, col < cols, EVEN)
        dy1_tile = load_extra(extra.dy1, row, extra.dy1_stride, col, col < cols, EVEN, UNIT)
        z_tile = load_extra(extra.z, row, extra.z_stride, col, col < cols, EVEN, UNIT)
        dy_tile, x_tile = gated(dy_tile, x_tile, z_tile, extra.norm_first)
        multiplier = factors(weight, col, cols, ZERO_CENTRED, EVEN)
        multiplier1 = factors(extra.weight1, col, cols, ZERO_CENTRED, EVEN)
        g = output_gradient(dy_tile, multiplier, dy1_tile, multiplier1)
        sum_g += g
        sum_g_centred += g * centred(x_tile, row_mean)
    of_xhat, of_one = row_corrections(tl.sum(sum_g), tl.sum(sum_g_centred), row_rstd, 1.0 / cols)
    tl.store(of_xhats + row, of_xhat)
    if mean is not None:
        tl.store(of_ones + row, of_one)


@triton.jit
def backward_columns(
    dx,
    partial_dweight,  # (groups, cols) fp32
    partial_dbias,
    dy,
    x,
    weight,
    mean,
    rstd,
    of_xhats,
    of_ones,
    extra,
    rows,
    cols,  # in units, as are the strides
    dy_stride,
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    HEADS: tl.constexpr,
    UNIT: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Second pass: a program owns C columns and, with the other groups, takes turns at tiles of R rows.

    It goes from the last row to the first, because the first pass has just left the last rows in the L2 cache.
    """
    cols *= UNIT
    column_tiles = tl.cdiv(cols, C)
    group = tl.program_id(0) // column_tiles
    groups = tl.num_programs(0) // column_tiles
    row_in_tile = tl.arange(0, R)[:, None]
    col = tl.program_id(0) % column_tiles * C + tl.arange(0, C)[None, :]
    weights = factors(weight, col, cols, ZERO_CENTRED, EVEN)
    weights1 = factors(extra.weight1, col, cols, ZERO_CENTRED, EVEN)
    biases = factors(extra.bias, col, cols, False, EVEN)
    dweight = tl.zeros([1, C], tl.float32)
    dbias = tl.zeros([1, C], tl.float32)
    dweight1 = tl.zeros([1, C], tl.float32)
    dbias1 = tl.zeros([1, C], tl.float32)
    row_tiles = tl.cdiv(rows, R)

    for tile in tl.range(group, row_tiles, groups, num_stages=STAGES):
        row = ((row_tiles - 1 - tile) * R + row_in_tile).to(tl.int64)
        dy_rows = dy + rows_at(row, dy_stride, extra.dy_head_stride, HEADS, UNIT)
        raw_dy = load(dy_rows + col, (row < rows) & (col < cols), EVEN)
        dy_tile = raw_dy.to(tl.float32)
        x_rows = x + rows_at(row, x_stride, extra.x_head_stride, HEADS, UNIT)
        raw_x = load(x_rows + col, (row < rows) & (col < cols), EVEN)
        inside = (row < rows) & (col < cols)
        dy1_tile = load_extra(extra.dy1, row, extra.dy1_stride, col, inside, EVEN, UNIT)
        z_tile = load_extra(extra.z, row, extra.z_stride, col, inside, EVEN, UNIT)
        dy_tile, x_tile = gated(dy_tile, raw_x, z_tile, extra.norm_first)
        row_rstd = tl.load(rstd + row, mask=row < rows, other=0.0)
        of_xhat = tl.load(of_xhats + row, mask=row < rows, other=0.0)
        row_mean = None
        of_one = None
        if mean is not None:
            row_mean = tl.load(mean + row, mask=row < rows, other=0.0)
            of_one = tl.load(of_ones + row, mask=row < rows, other=0.0)
        xhat = centred(x_tile, row_mean) * row_rstd
        g = output_gradient(dy_tile, weights, dy1_tile, weights1)
        if partial_dweight is not None:
            dweight += over_rows(dy_tile * xhat, True)
        if partial_dbias is not None:
            dbias += over_rows(dy_tile, True)
        if extra.partial_dweight1 is not None:
            dweight1 += over_rows(dy1_tile[0].to(tl.float32) * xhat, True)
        if extra.partial_dbias1 is not None:
            dbias1 += over_rows(dy1_tile[0].to(tl.float32), True)
        dx_tile = input_gradient(g, xhat, row_rstd, of_xhat, of_one, mean is not None)
        if extra.z is not None:
            dx_tile, dz_tile = through_gate(dx_tile, raw_dy, raw_x, z_tile, xhat, weights, biases, extra.norm_first)
            store(extra.dz + row * cols + col, dz_tile, inside, EVEN)
        store_input_gradients(dx + row * cols + col, dx_tile, extra, row, col, cols, inside, EVEN, UNIT)

    if partial_dweight is not None:
        tl.store(partial_dweight + group * cols + col, dweight, mask=col < cols)
    if partial_dbias is not None:
        tl.store(partial_dbias + group * cols + col, dbias, mask=col < cols)
    if extra.partial_dweight1 is not None:
        tl.store(extra.partial_dweight1 + group * cols + col, dweight1, mask=col < cols)
    if extra.partial_dbias1 is not None:
        tl.store(extra.partial_dbias1 + group * cols + col, dbias1, mask=col < cols)
