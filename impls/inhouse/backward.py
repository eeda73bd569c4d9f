"""The entry: checks what it is given, chooses a launch, and runs one to three kernels on the current stream."""

# Triton makes constexprs of plain ints and bools, and takes launch options beside a kernel's own arguments.
# pyright: reportArgumentType=false

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import triton.language as tl

from .columns import backward_columns, row_sums
from .finish import finish
from .grid import Exchange
from .launch import Gpu, Launch, OnePass, Shared, TwoPass, choose, power_of_two
from .parts import SLOTS, backward_parts
from .problem import LAUNCHES, Dtype, Problem
from .rows import backward_rows
from .tensors import check, output, rounded
from .workspace import workspace

Gradients = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
NAMES: dict[torch.dtype, Dtype] = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
TRITON = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


def norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    *,
    has_bias: bool = False,
    zero_centred: bool = False,
    launch: Launch | None = None,
    launched: list[Any] | None = None,
) -> Gradients:
    """Return dx, dweight and dbias of LayerNorm (given `mean`) or RMSNorm (`mean` None); formula.py has the formula.

    dy, x `(rows, cols)`, or with more leading dimensions that can be viewed as rows, bf16, fp16 or fp32, of one dtype,
    any row stride (0 among them), unit column stride; weight `(cols)` contiguous in any of these dtypes, or None; mean,
    rstd `(rows)` contiguous fp32. With `zero_centred` the norm multiplied by (1 + weight). dx has x's shape and dtype,
    and is contiguous; dweight and dbias have weight's dtype, and are None where there is no weight or bias. `launch`
    overrides the choice of `choose_for`; the compiled kernels are added to `launched`. Bitwise reproducible on one
    device.

    Raises ValueError for anything else: strides, dtypes, devices or shapes that do not fit, more than 131072 columns.
    """
    shape = x.shape
    if dy.shape != shape:
        raise ValueError(f"x and dy must have one shape, not {tuple(shape)} and {tuple(dy.shape)}")
    x, dy = _as_rows(x, "x"), _as_rows(dy, "dy")
    statistics = {"mean": mean, "rstd": rstd}
    check({"x": x, "dy": dy}, {"weight": weight}, statistics, has_bias=has_bias, zero_centred=zero_centred)
    rows, cols = x.shape
    dx = output(x, (rows, cols))
    dweight = None if weight is None else output(weight, (cols,))
    dbias = None if weight is None or not has_bias else output(weight, (cols,))
    if rows == 0:
        for gradient in (dweight, dbias):
            if gradient is not None:
                gradient.zero_()
    else:
        if launch is None:
            launch = choose_for(dy, x, weight, has_bias, layer=mean is not None)
        with torch.cuda.device_of(x):  # Triton launches on the current device; this does nothing for a CPU tensor
            kernels = _run(launch, _Tensors(dx, dweight, dbias, dy, x, weight, mean, rstd, zero_centred))
        if launched is not None:
            launched.extend(kernels)
    return rounded(dx.view(shape), x), rounded(dweight, weight), rounded(dbias, weight)


def _as_rows(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """The same memory as (rows, cols)."""
    if tensor.dim() < 2:
        raise ValueError(f"{name} must be (rows, cols), or have more leading dimensions, not {tuple(tensor.shape)}")
    try:
        return tensor.view(-1, tensor.shape[-1]) if tensor.dim() > 2 else tensor
    except RuntimeError as error:
        strides = tensor.stride()
        raise ValueError(
            f"{name}'s strides {strides} are no rows of equal distance; call .contiguous() on it"
        ) from error


def choose_for(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, has_bias: bool, *, layer: bool = False
) -> Launch:
    """The launch that `norm_backward` chooses for these tensors: a tuned one where there is one, else the default."""
    problem = Problem(
        norm="layer" if layer else "rms",
        rows=x.shape[0],
        cols=x.shape[1],
        dtype=NAMES[x.dtype],
        weight_dtype=None if weight is None else NAMES[weight.dtype],
        bias=has_bias,
        by_words=_by_words(dy, x, weight),
    )
    gpu = gpu_of(x.device)
    if path := os.environ.get(LAUNCHES):
        from .tuned import launch_for  # reads the file with pydantic, which nobody else has to have

        return launch_for(path, name_of(x.device), problem, gpu) or default_for(problem, gpu)
    return default_for(problem, gpu)


def default_for(problem: Problem, gpu: Gpu) -> Launch:
    """The launch of launch.py, which nothing was measured for."""
    return choose(
        problem.rows,
        problem.cols,
        item_bytes=problem.item_bytes,
        weight_bytes=problem.weight_bytes,
        accumulators=problem.accumulators,
        by_words=problem.by_words,
        gpu=gpu,
        layer=problem.norm == "layer",
    )


def _by_words(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None) -> bool:
    """Whether two neighbours can be read at once everywhere: rows begin at an even element, on a whole word."""
    if x.shape[1] % 2 or x.stride(0) % 2 or dy.stride(0) % 2:
        return False
    tensors = [tensor for tensor in (dy, x, weight) if tensor is not None]
    return all(t.storage_offset() % 2 == 0 and t.data_ptr() % (2 * t.itemsize) == 0 for t in tensors)


@dataclass(frozen=True)
class _Tensors:
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

    def partials(self, number: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Room for so many rows of partial dweight and dbias."""
        shape, device = (number, self.x.shape[1]), self.x.device
        dweight, dbias = (
            None if gradient is None else torch.empty(shape, dtype=torch.float32, device=device)
            for gradient in (self.dweight, self.dbias)
        )
        return dweight, dbias


def _run(launch: Launch, tensors: _Tensors) -> list[Any]:
    """Launch all that one call takes; return the compiled kernels, which are None in Triton's interpreter."""
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
    tensors: _Tensors,
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
        **_finish_tile(launch, cols, 16 if launch.maxnreg else 64),
        **_options(launch.warps, maxnreg=launch.maxnreg, together=fused),
    )
    return [kernel]


def _shared(
    launch: Shared,
    tensors: _Tensors,
    partial_dweight: torch.Tensor | None,
    partial_dbias: torch.Tensor | None,
    fused: bool,
) -> list[Any]:
    rows, cols = tensors.x.shape
    weight, dtype = tensors.weight, TRITON[tensors.x.dtype]
    exchange = _exchange(launch.parts, launch.rows * (1 if tensors.mean is None else 2))
    state, words = workspace(tensors.x.device, launch.groups * SLOTS.value * exchange["WORDS"])
    dx, dy, x = (as_words(tensor) for tensor in (tensors.dx, tensors.dy, tensors.x))
    kernel = backward_parts[(launch.programs,)](
        dx,
        tensors.dweight,
        tensors.dbias,
        partial_dweight,
        partial_dbias,
        dy,
        x,
        None if weight is None else as_words(weight),
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
        **_finish_tile(launch, cols, 16),
        **_options(launch.warps, maxnreg=launch.maxnreg, together=True),
    )
    return [kernel]


def as_words(tensor: torch.Tensor) -> torch.Tensor:
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
    tensors: _Tensors,
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


def _finish(tensors: _Tensors, partial_dweight: torch.Tensor, partial_dbias: torch.Tensor | None) -> Any:
    """Narrow column tiles, for as many programs as multiprocessors, each with all its loads in flight at once."""
    partials, cols = partial_dweight.shape
    tile_cols = 32 if cols <= 8192 else 128
    return finish[(-(-cols // tile_cols),)](
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


def _finish_tile(launch: OnePass | Shared, cols: int, elements: int) -> dict[str, int]:
    """Columns dealt out to all programs, at least a 32-byte sector each; so many elements a thread at most."""
    tile_cols = max(8, power_of_two(-(-cols // launch.programs)))
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


@lru_cache
def gpu_of(device: torch.device) -> Gpu:
    """What launch.py may know of a device."""
    if device.type != "cuda":
        return Gpu()
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        shared = getattr(properties, "shared_memory_per_block", 64 * 1024)
        return Gpu(properties.multi_processor_count, shared, shared)
    return Gpu(
        properties.multi_processor_count,
        properties.shared_memory_per_block_optin,
        properties.shared_memory_per_multiprocessor,
        ptx=properties.major >= 8,
    )


@lru_cache
def name_of(device: torch.device) -> str:
    """What a device calls itself, by which a file of tuned launches knows it; a CPU is `cpu`."""
    return torch.cuda.get_device_properties(device).name if device.type == "cuda" else "cpu"
