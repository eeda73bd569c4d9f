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
    """Sum the partial gradients of C columns, P at a time, and round them once."""
    index = tl.arange(0, P)[:, None]
    col = tl.program_id(0) * C + tl.arange(0, C)[None, :]
    finish_tile(dweight, dbias, partial_dweight, partial_dbias, index, col, partials, cols, P)


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
    """The same by the programs that wrote the partials, once all have: C columns at a time."""
    for tile in range(tl.program_id(0), tl.cdiv(cols, C), tl.num_programs(0)):
        finish_tile(dweight, dbias, partial_dweight, partial_dbias, index, tile * C + lane, partials, cols, P)


@triton.jit
def finish_tile(dweight, dbias, partial_dweight, partial_dbias, index, col, partials, cols, P: tl.constexpr):
    """The same of given columns; the loads for both gradients are under way at once."""
    of_weight = ((index + col) * 0).to(tl.float32)  # zeros, laid out as the caller lays tiles out
    of_bias = of_weight
    for start in range(0, partials, P):
        inside = (start + index < partials) & (col < cols)
        of_weight += tl.load(partial_dweight + (start + index) * cols + col, mask=inside, other=0.0)
        if partial_dbias is not None:
            of_bias += tl.load(partial_dbias + (start + index) * cols + col, mask=inside, other=0.0)
    of_weight = tl.sum(of_weight, 0, keep_dims=True)
    tl.store(dweight + col, of_weight.to(dweight.dtype.element_ty), mask=col < cols)
    if partial_dbias is not None:
        of_bias = tl.sum(of_bias, 0, keep_dims=True)
        tl.store(dbias + col, of_bias.to(dbias.dtype.element_ty), mask=col < cols)
