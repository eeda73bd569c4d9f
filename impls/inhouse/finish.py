"""The last sum: partial gradients are added in one fixed order, and rounded once."""

# Triton compiles this file: kernel arguments have no Python type, and tl.range is not Python's.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .launch import KernelCall, kernel_options, power_of_two
from .tensors import CallTensors


def sum_partials(
    tensors: CallTensors, partial_dweight: torch.Tensor | None, partial_dbias: torch.Tensor | None, extra: Any
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
        (tensors.parameter_gradients * -(-cols // tile_cols),),
        *tensors.gradients[1:3],
        partial_dweight,
        partial_dbias,
        extra,
        partials,
        cols,
        P=min(power_of_two(partials), 16384 // tile_cols),
        C=tile_cols,
        **kernel_options(8),
    )
    return [kernel]


def finish_tile(tensors: CallTensors, programs: int, partials: int, elements: int) -> dict[str, int]:
    """The tile of the last sum within a kernel of `programs` programs, of at most so many elements.

    The programs share the columns of all gradients, at least a 32-byte sector each.
    """
    tile_cols = max(8, power_of_two(-(-tensors.parameter_gradients * tensors.shape[1] // programs)))
    return {"FINISH_ROWS": max(1, min(power_of_two(partials), elements // tile_cols)), "FINISH_COLS": tile_cols}


@triton.jit
def finish(dweight, dbias, partial_dweight, partial_dbias, extra, partials, cols, P: tl.constexpr, C: tl.constexpr):
    """Sum the partial gradients of C columns, P at a time, and round them once; a program for each tile."""
    index = tl.arange(0, P)[:, None]
    lane = tl.arange(0, C)[None, :]
    results = results_of(dweight, dbias, partial_dweight, partial_dbias, extra)
    finish_piece(results, tl.program_id(0), index, lane, partials, cols, tl.num_programs(0), P, C)


@triton.jit
def results_of(dweight, dbias, partial_dweight, partial_dbias, extra):
    """Each gradient of a parameter that there is, and its partials."""
    results = ((dweight, partial_dweight),)
    if partial_dbias is not None:
        results = results + ((dbias, partial_dbias),)
    if extra.dweight1 is not None:
        results = results + ((extra.dweight1, extra.partial_dweight1),)
    if extra.dbias1 is not None:
        results = results + ((extra.dbias1, extra.partial_dbias1),)
    return results


@triton.jit
def finish_piece(
    results,
    piece,
    index,  # (P, 1), from 0 on: as the caller lays tiles out
    lane,  # (1, C), from 0 on
    partials,
    cols,
    pieces,
    P: tl.constexpr,
    C: tl.constexpr,
):
    """Sum what is one of so many pieces of all gradients: every so many-th tile of C columns of one gradient.

    A gradient a tile, and not all: then there are more columns to deal out, and each program reads the same bytes in
    fewer pieces, with one set of sums.
    """
    tiles = tl.cdiv(cols, C)
    for tile in range(piece, len(results) * tiles, pieces):
        finish_tile_of(results, tile, tiles, index, lane, partials, cols, P, C)


@triton.jit
def finish_tile_of(results, tile, tiles, index, lane, partials, cols, P: tl.constexpr, C: tl.constexpr):
    """Sum one tile of all those of 1, 2 or 4 gradients, which follow each other."""
    if len(results) == 1:
        finish_columns(results[0], index, tile * C + lane, partials, cols, P)
    elif len(results) == 2 or tile < 2 * tiles:
        finish_tile_of_two(results[0], results[1], tile, tiles, index, lane, partials, cols, P, C)
    else:
        finish_tile_of_two(results[2], results[3], tile - 2 * tiles, tiles, index, lane, partials, cols, P, C)


@triton.jit
def finish_tile_of_two(first, second, tile, tiles, index, lane, partials, cols, P: tl.constexpr, C: tl.constexpr):
    """Sum one tile of all those of two gradients."""
    if tile < tiles:
        finish_columns(first, index, tile * C + lane, partials, cols, P)
    else:
        finish_columns(second, index, (tile - tiles) * C + lane, partials, cols, P)


@triton.jit
def finish_columns(result, index, col, partials, cols, P: tl.constexpr):
    """Sum given columns of one gradient."""
    gradient, partial = result
    total = ((index + col) * 0).to(tl.float32)  # zeros, laid out as the caller lays tiles out
    for start in range(0, partials, P):
        inside = (start + index < partials) & (col < cols)
        total += tl.load(partial + (start + index) * cols + col, mask=inside, other=0.0)
    total = tl.sum(total, 0, keep_dims=True)
    tl.store(gradient + col, total.to(gradient.dtype.element_ty), mask=col < cols)
