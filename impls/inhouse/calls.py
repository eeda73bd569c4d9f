"""The calls of the kernels: the one to three that a launch takes, and what each is told."""

# Triton makes constexprs of plain ints and bools, and takes launch options beside a kernel's own arguments.
# pyright: reportArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import triton.language as tl

from .columns import backward_columns, row_sums
from .few import backward_few
from .finish import finish
from .grid import Exchange
from .kinds import FewRows, Launch, OnePass, Shared, TwoPass
from .launch import power_of_two
from .parts import SLOTS, backward_parts
from .rows import backward_rows
from .workspace import workspace

TRITON = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@dataclass(frozen=True)
class Tensors:
    """What one call reads and writes; x, dy and dx are (rows, cols)."""

    dx: torch.Tensor
    dweight: torch.Tensor | None
    dbias: torch.Tensor | None
    dy: torch.Tensor
    x: torch.Tensor
    weight: torch.Tensor | None
    mean: torch.Tensor | None
    rstd: torch.Tensor
    zero_centred: bool

    @property
    def gradients(self) -> int:
        """How many have partial sums: dweight, or dweight and dbias."""
        return 1 if self.dbias is None else 2

    def partials(self, number: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Room for so many rows of partial dweight and dbias."""
        shape, device = (number, self.x.shape[1]), self.x.device
        dweight, dbias = (
            None if gradient is None else torch.empty(shape, dtype=torch.float32, device=device)
            for gradient in (self.dweight, self.dbias)
        )
        return dweight, dbias


def run(launch: Launch, tensors: Tensors) -> list[Any]:
    """Launch all that one call takes; return the compiled kernels, which are None in Triton's interpreter."""
    if isinstance(launch, FewRows):
        return [_few_rows(launch, tensors)]
    partial_dweight, partial_dbias = tensors.partials(launch.partials)
    fused = launch.fused and partial_dweight is not None
    if isinstance(launch, OnePass):
        kernels = _one_pass(launch, tensors, partial_dweight, partial_dbias, fused)
    elif isinstance(launch, Shared):
        kernels = _shared(launch, tensors, partial_dweight, partial_dbias, fused)
    else:
        kernels = _two_pass(launch, tensors, partial_dweight, partial_dbias)
    if partial_dweight is not None and not fused:
        kernels.append(_finish(tensors, partial_dweight, partial_dbias))
    return kernels


def _one_pass(
    launch: OnePass,
    tensors: Tensors,
    partial_dweight: torch.Tensor | None,
    partial_dbias: torch.Tensor | None,
    fused: bool,
) -> list[Any]:
    rows, cols = tensors.x.shape
    kernel = backward_rows[(launch.programs,)](
        tensors.dx,
        tensors.dweight,
        tensors.dbias,
        partial_dweight,
        partial_dbias,
        tensors.dy,
        tensors.x,
        tensors.weight,
        tensors.mean,
        tensors.rstd,
        workspace(tensors.x.device, 0)[0] if fused else None,
        rows,
        cols,
        tensors.dy.stride(0),
        tensors.x.stride(0),
        ZERO_CENTRED=tensors.zero_centred,
        R=launch.rows,
        K=launch.chunks,
        C=launch.cols,
        FOLD=launch.fold,
        PACKED=launch.packed,
        STAGES=launch.stages,
        EVEN=rows % launch.rows == 0 and cols == launch.chunks * launch.cols,
        FUSED=fused,
        **_finish_tile(launch, cols, tensors.gradients, 16 if launch.maxnreg else 64),
        **_options(launch.warps, maxnreg=launch.maxnreg, together=fused),
    )
    return [kernel]


def _shared(
    launch: Shared,
    tensors: Tensors,
    partial_dweight: torch.Tensor | None,
    partial_dbias: torch.Tensor | None,
    fused: bool,
) -> list[Any]:
    rows, cols = tensors.x.shape
    weight, dtype = tensors.weight, TRITON[tensors.x.dtype]
    exchange = _exchange(launch.parts, launch.rows * (1 if tensors.mean is None else 2))
    state, words = workspace(tensors.x.device, launch.groups * SLOTS.value * exchange["WORDS"])
    dx, dy, x = (_as_words(tensor) for tensor in (tensors.dx, tensors.dy, tensors.x))
    kernel = backward_parts[(launch.programs,)](  # pyright: ignore[reportIndexIssue]  what gluon.jit gives is a union
        dx,
        tensors.dweight,
        tensors.dbias,
        partial_dweight,
        partial_dbias,
        dy,
        x,
        None if weight is None else _as_words(weight),
        tensors.mean,
        tensors.rstd,
        state,
        words,
        rows,
        cols,
        dy.stride(0),
        x.stride(0),
        ZERO_CENTRED=tensors.zero_centred,
        DTYPE=dtype,
        WEIGHT_DTYPE=dtype if weight is None else TRITON[weight.dtype],
        R=launch.rows,
        C=launch.cols,
        S=launch.parts,
        D=launch.delay,
        STAGES=launch.stages,
        EVEN=cols == launch.parts * launch.cols,
        FUSED=fused,
        **exchange,
        **_finish_tile(launch, cols, tensors.gradients, 16),
        **_options(launch.warps, maxnreg=launch.maxnreg, together=True),
    )
    return [kernel]


def _as_words(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, two numbers a word."""
    return tensor.view(torch.int32 if tensor.itemsize == 2 else torch.int64)


@lru_cache
def _exchange(senders: int, sums: int) -> dict[str, Any]:
    """What `backward_parts` has to know of an exchange; its assembly is written once, not at every call."""
    exchange = Exchange(senders, sums)
    return {
        "WORDS": exchange.words,
        "LOADS": exchange.loads,
        "SEND": exchange.send(),
        "LOOK": exchange.look(),
        "RECEIVE": exchange.receive(),
    }


def _two_pass(
    launch: TwoPass,
    tensors: Tensors,
    partial_dweight: torch.Tensor | None,
    partial_dbias: torch.Tensor | None,
) -> list[Any]:
    rows, cols = tensors.x.shape
    of_xhats = torch.empty_like(tensors.rstd)
    of_ones = None if tensors.mean is None else torch.empty_like(tensors.rstd)
    of_rows = row_sums[(rows,)](
        of_xhats,
        of_ones,
        tensors.dy,
        tensors.x,
        tensors.weight,
        tensors.mean,
        tensors.rstd,
        cols,
        tensors.dy.stride(0),
        tensors.x.stride(0),
        ZERO_CENTRED=tensors.zero_centred,
        C=launch.sum_cols,
        STAGES=launch.stages,
        EVEN=cols % launch.sum_cols == 0,
        **_options(launch.sum_warps),
    )
    of_columns = backward_columns[(launch.groups * -(-cols // launch.cols),)](
        tensors.dx,
        partial_dweight,
        partial_dbias,
        tensors.dy,
        tensors.x,
        tensors.weight,
        tensors.mean,
        tensors.rstd,
        of_xhats,
        of_ones,
        rows,
        cols,
        tensors.dy.stride(0),
        tensors.x.stride(0),
        ZERO_CENTRED=tensors.zero_centred,
        R=launch.rows,
        C=launch.cols,
        STAGES=launch.stages,
        EVEN=rows % launch.rows == 0 and cols % launch.cols == 0,
        **_options(launch.warps),
    )
    return [of_rows, of_columns]


def _few_rows(launch: FewRows, tensors: Tensors) -> Any:
    rows, cols = tensors.x.shape
    column_tiles = 0 if tensors.dweight is None else -(-cols // launch.cols)
    return backward_few[(rows + column_tiles,)](
        tensors.dx,
        tensors.dweight,
        tensors.dbias,
        tensors.dy,
        tensors.x,
        tensors.weight,
        tensors.mean,
        tensors.rstd,
        rows,
        cols,
        tensors.dy.stride(0),
        tensors.x.stride(0),
        ZERO_CENTRED=tensors.zero_centred,
        R=launch.rows,
        C=launch.cols,
        K=launch.chunks,
        ROW_C=launch.row_cols,
        STAGES=launch.stages,
        EVEN=cols == launch.chunks * launch.row_cols,
        **_options(launch.warps, maxnreg=launch.maxnreg),
    )


def _finish(tensors: Tensors, partial_dweight: torch.Tensor, partial_dbias: torch.Tensor | None) -> Any:
    """Narrow column tiles, for as many programs as multiprocessors, each with all its loads in flight at once."""
    partials, cols = partial_dweight.shape
    tile_cols = 32 if cols <= 8192 else 128
    return finish[(tensors.gradients * -(-cols // tile_cols),)](
        tensors.dweight,
        tensors.dbias,
        partial_dweight,
        partial_dbias,
        partials,
        cols,
        P=min(power_of_two(partials), 16384 // tile_cols),
        C=tile_cols,
        **_options(8),
    )


def _finish_tile(launch: OnePass | Shared, cols: int, gradients: int, elements: int) -> dict[str, int]:
    """Columns of all gradients dealt out to all programs, at least a 32-byte sector each.

    At most so many elements a thread.
    """
    tile_cols = max(8, power_of_two(-(-gradients * cols // launch.programs)))
    return {
        "FINISH_ROWS": max(1, min(power_of_two(launch.partials), elements * 32 * launch.warps // tile_cols)),
        "FINISH_COLS": tile_cols,
    }


def _options(warps: int, *, maxnreg: int | None = None, together: bool = False) -> dict[str, Any]:
    """Launch options, each named only where it is wanted: the AMD backend refuses the ones that it does not know."""
    options: dict[str, Any] = {"num_warps": warps}
    if maxnreg is not None:
        options["maxnreg"] = maxnreg
    if together:
        # Programs wait for each other, so all have to be on the device at once.
        options["launch_cooperative_grid"] = True
    return options
