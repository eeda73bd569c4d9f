"""The entry: checks what it is given, chooses a launch, and runs two or three kernels on the current stream."""

# Triton makes constexprs of plain ints and bools, and takes launch options beside a kernel's own arguments.
# pyright: reportArgumentType=false

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from . import kernels
from .launch import WIDEST, Gpu, Launch, OnePass, TwoPass, choose, power_of_two

Gradients = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
FLOATS = (torch.bfloat16, torch.float16, torch.float32)


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
) -> Gradients:
    """Return dx, dweight and dbias of LayerNorm (given `mean`) or RMSNorm (`mean` None); kernels.py has the formula.

    dy, x `(rows, cols)`, or with more leading dimensions that can be viewed as rows, bf16, fp16 or fp32, of one dtype,
    any row stride (0 among them), unit column stride; weight `(cols)` contiguous in any of these dtypes, or None; mean,
    rstd `(rows)` contiguous fp32. With `zero_centred` the norm multiplied by (1 + weight). dx has x's shape and dtype,
    and is contiguous; dweight and dbias have weight's dtype, and are None where there is no weight or bias. `launch`
    overrides the choice in launch.py. Bitwise reproducible on one device.

    Raises ValueError for anything else: strides, dtypes, devices or shapes that do not fit, more than 65536 columns.
    """
    shape = x.shape
    if dy.shape != shape:
        raise ValueError(f"x and dy must have one shape, not {tuple(shape)} and {tuple(dy.shape)}")
    x, dy = _as_rows(x, "x"), _as_rows(dy, "dy")
    _check(dy, x, weight, mean, rstd, has_bias=has_bias, zero_centred=zero_centred)
    rows, cols = x.shape
    dx = _output(x, (rows, cols))
    dweight = None if weight is None else _output(weight, (cols,))
    dbias = None if weight is None or not has_bias else _output(weight, (cols,))
    if rows == 0:
        for gradient in (dweight, dbias):
            if gradient is not None:
                gradient.zero_()
    else:
        if launch is None:
            launch = choose_for(x, weight, has_bias)
        with torch.cuda.device_of(x):  # Triton launches on the current device; this does nothing for a CPU tensor
            _run(launch, dx, dweight, dbias, dy, x, weight, mean, rstd, zero_centred)
    return _as(dx.view(shape), x), _as(dweight, weight), _as(dbias, weight)


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


def choose_for(x: torch.Tensor, weight: torch.Tensor | None, has_bias: bool) -> Launch:
    """The launch that `norm_backward` chooses for these tensors."""
    rows, cols = x.shape
    weight_bytes = 0 if weight is None else weight.itemsize
    accumulators = int(weight is not None) + int(has_bias)
    return choose(
        rows,
        cols,
        item_bytes=x.itemsize,
        weight_bytes=weight_bytes,
        accumulators=accumulators,
        gpu=gpu_of(x.device),
    )


def _output(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """An empty output in the dtype of `like`; fp32 on a CPU, where Triton's interpreter cuts bf16 off, not rounds."""
    return torch.empty(shape, dtype=torch.float32 if like.is_cpu else like.dtype, device=like.device)


def _as(gradient: torch.Tensor | None, like: torch.Tensor | None) -> Any:
    """The gradient in the dtype of what it is the gradient of: itself on a GPU, rounded here on a CPU."""
    return None if gradient is None or like is None else gradient.to(like.dtype)


def _run(
    launch: Launch,
    dx: torch.Tensor,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    zero_centred: bool,
) -> None:
    partials = launch.programs if isinstance(launch, OnePass) else launch.groups
    shape = (partials, x.shape[1])
    partial_dweight = None if dweight is None else torch.empty(shape, dtype=torch.float32, device=x.device)
    partial_dbias = None if dbias is None else torch.empty(shape, dtype=torch.float32, device=x.device)
    if isinstance(launch, OnePass):
        _one_pass(launch, dx, partial_dweight, partial_dbias, dy, x, weight, mean, rstd, zero_centred)
    else:
        _two_pass(launch, dx, partial_dweight, partial_dbias, dy, x, weight, mean, rstd, zero_centred)
    if partial_dweight is not None:
        _finish(launch, dweight, dbias, partial_dweight, partial_dbias)


def _one_pass(
    launch: OnePass,
    dx: torch.Tensor,
    partial_dweight: torch.Tensor | None,
    partial_dbias: torch.Tensor | None,
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    zero_centred: bool,
) -> None:
    rows, cols = x.shape
    kernels.backward_rows[(launch.programs,)](
        dx,
        partial_dweight,
        partial_dbias,
        dy,
        x,
        weight,
        mean,
        rstd,
        rows,
        cols,
        dy.stride(0),
        x.stride(0),
        ZERO_CENTRED=zero_centred,
        R=launch.rows,
        K=launch.chunks,
        C=launch.cols,
        FOLD=launch.fold,
        PACKED=launch.packed,
        STAGES=launch.stages,
        EVEN=rows % launch.rows == 0 and cols == launch.chunks * launch.cols,
        PDL=launch.pdl and weight is not None,
        **_options(launch.warps, maxnreg=launch.maxnreg),
    )


def _two_pass(
    launch: TwoPass,
    dx: torch.Tensor,
    partial_dweight: torch.Tensor | None,
    partial_dbias: torch.Tensor | None,
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    zero_centred: bool,
) -> None:
    rows, cols = x.shape
    means_g = None if mean is None else torch.empty_like(rstd)
    means_g_xhat = torch.empty_like(rstd)
    kernels.row_sums[(rows,)](
        means_g,
        means_g_xhat,
        dy,
        x,
        weight,
        mean,
        rstd,
        cols,
        dy.stride(0),
        x.stride(0),
        ZERO_CENTRED=zero_centred,
        C=launch.sum_cols,
        STAGES=launch.stages,
        EVEN=cols % launch.sum_cols == 0,
        PDL=launch.pdl,
        **_options(launch.sum_warps),
    )
    kernels.backward_columns[(launch.groups * -(-cols // launch.cols),)](
        dx,
        partial_dweight,
        partial_dbias,
        dy,
        x,
        weight,
        mean,
        rstd,
        means_g,
        means_g_xhat,
        rows,
        cols,
        dy.stride(0),
        x.stride(0),
        ZERO_CENTRED=zero_centred,
        R=launch.rows,
        C=launch.cols,
        STAGES=launch.stages,
        EVEN=rows % launch.rows == 0 and cols % launch.cols == 0,
        PDL=launch.pdl,
        **_options(launch.warps, dependent=launch.pdl),
    )


def _finish(
    launch: Launch,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
    partial_dweight: torch.Tensor,
    partial_dbias: torch.Tensor | None,
) -> None:
    """Narrow column tiles, for as many programs as multiprocessors, each with all its loads in flight at once."""
    partials, cols = partial_dweight.shape
    tile_cols = 32 if cols <= 8192 else 128
    kernels.finish[(-(-cols // tile_cols),)](
        dweight,
        dbias,
        partial_dweight,
        partial_dbias,
        partials,
        cols,
        P=min(power_of_two(partials), 16384 // tile_cols),
        C=tile_cols,
        PDL=launch.pdl,
        **_options(8, dependent=launch.pdl),
    )


def _options(warps: int, *, maxnreg: int | None = None, dependent: bool = False) -> dict[str, Any]:
    """Launch options, each named only where it is wanted: the AMD backend refuses the ones that it does not know."""
    options: dict[str, Any] = {"num_warps": warps}
    if maxnreg is not None:
        options["maxnreg"] = maxnreg
    if dependent:
        # This kernel may start before the one ahead of it has ended; it waits on the device.
        options["launch_pdl"] = True
    return options


@lru_cache
def gpu_of(device: torch.device) -> Gpu:
    """What launch.py may know of a device."""
    if device.type != "cuda":
        return Gpu()
    properties = torch.cuda.get_device_properties(device)
    nvidia = torch.version.hip is None
    shared = getattr(properties, "shared_memory_per_block_optin" if nvidia else "shared_memory_per_block", 64 * 1024)
    return Gpu(properties.multi_processor_count, shared, pdl=nvidia and properties.major >= 9, ptx=nvidia)


def _check(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    *,
    has_bias: bool,
    zero_centred: bool,
) -> None:
    rows, cols = x.shape
    if not 1 <= cols <= WIDEST:
        raise ValueError(f"1 to {WIDEST} columns, not {cols}")
    if x.dtype not in FLOATS or dy.dtype != x.dtype:
        raise ValueError(f"x and dy must be bf16, fp16 or fp32, and alike, not {x.dtype} and {dy.dtype}")
    for name, tensor in (("x", x), ("dy", dy)):
        if cols > 1 and tensor.stride(1) != 1:
            raise ValueError(f"{name} must have unit column stride, not {tensor.stride(1)}; call .contiguous() on it")
    if weight is None and (has_bias or zero_centred):
        raise ValueError("a bias or a zero-centred weight needs a weight")
    if weight is not None and weight.dtype not in FLOATS:
        raise ValueError(f"weight must be bf16, fp16 or fp32, not {weight.dtype}")
    vectors = (("weight", weight, cols), ("mean", mean, rows), ("rstd", rstd, rows))
    for name, vector, length in vectors:
        if vector is not None and (vector.shape != (length,) or not vector.is_contiguous()):
            raise ValueError(f"{name} must be contiguous ({length},), not {tuple(vector.shape)} {vector.stride()}")
        if vector is not None and name != "weight" and vector.dtype != torch.float32:
            raise ValueError(f"{name} must be fp32, not {vector.dtype}")
    if any(tensor is not None and tensor.device != x.device for tensor in (dy, weight, mean, rstd)):
        raise ValueError(f"all tensors must be on x's device, {x.device}")
