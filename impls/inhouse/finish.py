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
    col = tl.program_id(0) * C + tl.arange(0, C)[None, :]
    finish_one(dweight, partial_dweight, col, partials, cols, P, C)
    if partial_dbias is not None:
        finish_one(dbias, partial_dbias, col, partials, cols, P, C)


@triton.jit
def finish_in_turn(dweight, dbias, partial_dweight, partial_dbias, partials, cols, P: tl.constexpr, C: tl.constexpr):
    """The same by the programs that wrote the partials, once all have: C columns at a time."""
    for tile in range(tl.program_id(0), tl.cdiv(cols, C), tl.num_programs(0)):
        col = tile * C + tl.arange(0, C)[None, :]
        finish_one(dweight, partial_dweight, col, partials, cols, P, C)
        if partial_dbias is not None:
            finish_one(dbias, partial_dbias, col, partials, cols, P, C)


@triton.jit
def finish_one(gradient, partial, col, partials, cols, P: tl.constexpr, C: tl.constexpr):
    total = tl.zeros([P, C], tl.float32)
    for start in range(0, partials, P):
        index = start + tl.arange(0, P)[:, None]
        total += tl.load(partial + index * cols + col, mask=(index < partials) & (col < cols), other=0.0)
    tl.store(gradient + col, tl.sum(total, 0, keep_dims=True).to(gradient.dtype.element_ty), mask=col < cols)
