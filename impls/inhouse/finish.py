"""The last sum: partial gradients are added in one fixed order, and rounded once."""

# Triton compiles this file: kernel arguments have no Python type, and tl.range is not Python's.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .launch import KernelCall, kernel_options, power_of_two
from .tensors import Tensors


def sum_partials(
    tensors: Tensors, partial_dweight: torch.Tensor | None, partial_dbias: torch.Tensor | None
) -> list[KernelCall]:
    """The last sum as a kernel of its own, if there is anything to sum.

    Narrow column tiles, for as many programs as multiprocessors, each with all its loads in flight at once.
    """
    if partial_dweight is None:
        return []
    partials, cols = partial_dweight.shape
    tile_cols = 32 if cols <= 8192 else 128
    kernel = KernelCall(
        finish,
        (tensors.gradients * -(-cols // tile_cols),),
        tensors.dweight,
        tensors.dbias,
        partial_dweight,
        partial_dbias,
        partials,
        cols,
        P=min(power_of_two(partials), 16384 // tile_cols),
        C=tile_cols,
        **kernel_options(8),
    )
    return [kernel]


def finish_tile(tensors: Tensors, programs: int, partials: int, elements: int) -> dict[str, int]:
    """The tile of the last sum within a kernel of `programs` programs, of at most so many elements.

    Columns of all gradients are dealt out to all programs, at least a 32-byte sector each.
    """
    tile_cols = max(8, power_of_two(-(-tensors.gradients * tensors.x.shape[1] // programs)))
    return {
        "FINISH_ROWS": max(1, min(power_of_two(partials), elements // tile_cols)),
        "FINISH_COLS": tile_cols,
    }


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
    """Sum C columns of one gradient at a time, in turn by the programs of one launch.

    A gradient a tile, and not both: then there are twice as many columns to deal out, and each program reads the same
    bytes in half as many pieces, with one set of sums.
    """
    finish_piece(
        dweight,
        dbias,
        partial_dweight,
        partial_dbias,
        tl.program_id(0),
        index,
        lane,
        partials,
        cols,
        tl.num_programs(0),
        P,
        C,
    )


@triton.jit
def finish_piece(
    dweight,
    dbias,
    partial_dweight,
    partial_dbias,
    piece,
    index,
    lane,
    partials,
    cols,
    pieces,
    P: tl.constexpr,
    C: tl.constexpr,
):
    """Sum what is one of so many pieces of all gradients: every so many-th tile."""
    tiles = tl.cdiv(cols, C)
    gradients = 1 if partial_dbias is None else 2
    for tile in range(piece, gradients * tiles, pieces):
        if partial_dbias is None or tile < tiles:
            finish_columns(dweight, partial_dweight, index, tile * C + lane, partials, cols, P)
        else:
            finish_columns(dbias, partial_dbias, index, (tile - tiles) * C + lane, partials, cols, P)


@triton.jit
def finish_columns(gradient, partial, index, col, partials, cols, P: tl.constexpr):
    """Sum given columns of one gradient."""
    total = ((index + col) * 0).to(tl.float32)  # zeros, laid out as the caller lays tiles out
    for start in range(0, partials, P):
        inside = (start + index < partials) & (col < cols)
        total += tl.load(partial + (start + index) * cols + col, mask=inside, other=0.0)
    total = tl.sum(total, 0, keep_dims=True)
    tl.store(gradient + col, total.to(gradient.dtype.element_ty), mask=col < cols)
