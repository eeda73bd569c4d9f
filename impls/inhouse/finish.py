"""The last sum: partial gradients, added in one fixed order and rounded once."""

# Triton compiles this file: kernel arguments have no Python type, and tl.range is not Python's.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl


@triton.jit
def finish(
    dweight,
    dbias,
    partial_dweight,
    partial_dbias,
    partials,
    cols,
    P: tl.constexpr,
    C: tl.constexpr,
):
    """Sum the partial gradients of C columns, P at a time, and round them once; a program for each tile."""
    index = tl.arange(0, P)[:, None]
    lane = tl.arange(0, C)[None, :]
    finish_in_turn(dweight, dbias, partial_dweight, partial_dbias, index, lane, partials, cols, P, C)


@triton.jit
def finish_in_turn(
    dweight,
    dbias,
    partial_dweight,
    partial_dbias,
    index,  # (P, 1), from 0 on: as the caller lays tiles out
    lane,  # (1, C), from 0 on
    partials,
    cols,
    P: tl.constexpr,
    C: tl.constexpr,
):
    """Sum C columns of one gradient at a time, the tiles in turn by the programs of one launch.

    A gradient a tile, and not both: then there are twice as many columns to deal out, and each program reads the same
    bytes in half as many pieces, with one set of sums.
    """
    tiles = tl.cdiv(cols, C)
    gradients = 1 if partial_dbias is None else 2
    for tile in range(tl.program_id(0), gradients * tiles, tl.num_programs(0)):
        if partial_dbias is None or tile < tiles:
            finish_tile(dweight, partial_dweight, index, tile * C + lane, partials, cols, P)
        else:
            finish_tile(dbias, partial_dbias, index, (tile - tiles) * C + lane, partials, cols, P)


@triton.jit
def finish_tile(gradient, partial, index, col, partials, cols, P: tl.constexpr):
    """The same of given columns."""
    total = ((index + col) * 0).to(tl.float32)  # zeros, laid out as the caller lays tiles out
    for start in range(0, partials, P):
        inside = (start + index < partials) & (col < cols)
        total += tl.load(partial + (start + index) * cols + col, mask=inside, other=0.0)
    total = tl.sum(total, 0, keep_dims=True)
    tl.store(gradient + col, total.to(gradient.dtype.element_ty), mask=col < cols)
