"""The entry: checks its arguments, chooses a launch, and runs it on the current stream."""

from __future__ import annotations

import math
import os
from typing import Any

import torch

from . import bound
from .checks import IS_CHECKED, between_marks
from .device import gpu_of, name_of
from .graph_memory import beside_captures
from .launch import Launch
from .problem import LAUNCHES, SM_MARGIN, Dtype, Problem, margin_of_environment
from .regimes.choice import choose
from .tensors import NO_EXTRAS, CallTensors, Extras, NormGradients, check, gradients_like, output, rows_or_heads

Gradients = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
VARIABLES: Any = getattr(os.environ, "_data", {})  # os.environ itself takes ten times as long to look into
LAUNCHES_VARIABLE, MARGIN_VARIABLE = map(getattr(os.environ, "encodekey", str), (LAUNCHES, SM_MARGIN))
NAMES: dict[torch.dtype, Dtype] = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


def norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    *,
    has_bias: bool = False,
    zero_centred: bool = False,
    dres: torch.Tensor | None = None,
    dx_alone: bool = False,
    sm_margin: int | None = None,
    launch: Launch | None = None,
    launched: list[Any] | None = None,
) -> Gradients:
    """Return dx, dweight and dbias of LayerNorm (given `mean`) or RMSNorm (`mean` None); formula.py has the formula.

    dy, x `(rows, cols)`, or with more leading dimensions that can be viewed as rows, bf16, fp16 or fp32, of one dtype,
    any row stride (0 among them), unit column stride; weight `(cols)` contiguous in any of these dtypes, or None; mean,
    rstd `(rows)` contiguous fp32. With `zero_centred` the norm multiplied by (1 + weight). dx has x's shape and dtype,
    and is contiguous; dweight and dbias have weight's dtype, and are None where there is no weight or bias. `dres`, the
    gradient of the residual that x goes on as, is like dy and is added to dx before dx is rounded. With `dx_alone` no
    gradient of a parameter is computed, and None is returned for it. The launch is chosen
    for a device with `sm_margin` fewer multiprocessors, which leaves these to other kernels; None is what
    NORMBWD_SM_MARGIN says. `launch` overrides the choice of `choose_for`; the compiled kernels are added to `launched`.
    Bitwise reproducible on one device with one margin.

    Raises ValueError for anything else: strides, dtypes, devices or shapes that do not fit, more than 131072 columns
    or 2^31 - 1024 rows.
    """
    given = dy, x, weight, mean, rstd
    if dres is not None:
        options: Any = {"dx_alone": dx_alone, "sm_margin": sm_margin, "launch": launch, "launched": launched}
        extras = Extras(dres=dres)
        return backward_with_extras(*given, extras, has_bias=has_bias, zero_centred=zero_centred, **options)[:3]
    variables = VARIABLES.get(LAUNCHES_VARIABLE), VARIABLES.get(MARGIN_VARIABLE)
    decided_by = "backward", has_bias, zero_centred, dx_alone, sm_margin, launch, variables
    outputs = bound.restart(given, *decided_by, launched=launched)
    if outputs is not None:
        dx, dweight, dbias = outputs
        assert dx is not None
        return dx, dweight, dbias
    return _decided(given, NO_EXTRAS, decided_by, launched)[:3]


def backward_with_extras(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    extras: Extras,
    *,
    has_bias: bool = False,
    zero_centred: bool = False,
    dx_alone: bool = False,
    sm_margin: int | None = None,
    launch: Launch | None = None,
    launched: list[Any] | None = None,
) -> NormGradients:
    """Return the gradients of a norm with what a model has around it, otherwise as `norm_backward` does.

    Gradients of branches and of z have x's shape and dtype, and are contiguous; those of a second norm's parameters are
    like the first's. With a gate before the norm, mean and rstd are those of x * silu(z). Raises ValueError as
    `norm_backward` does, and where `extras` do not fit together.
    """
    given = dy, x, weight, mean, rstd
    variables = (VARIABLES.get(LAUNCHES_VARIABLE), VARIABLES.get(MARGIN_VARIABLE), *extras.decided_by)
    decided_by = "with extras", has_bias, zero_centred, dx_alone, sm_margin, launch, variables
    outputs: Any = bound.restart((*given, *extras.tensors), *decided_by, launched=launched)
    if outputs is not None:
        return NormGradients(*outputs)
    return _decided(given, extras, decided_by, launched)


@beside_captures()
def _decided(
    given: tuple[Any, ...], extras: Extras, decided_by: tuple[Any, ...], launched: list[Any] | None
) -> NormGradients:
    """The gradients by a launch that is decided now, and kept for calls that are `decided_by` the same."""
    kind, has_bias, zero_centred, dx_alone, sm_margin, launch, _ = decided_by
    dy, x, weight, mean, rstd = given
    shape = x.shape
    if dy.shape != shape:
        raise ValueError(f"x and dy must have one shape, not {tuple(shape)} and {tuple(dy.shape)}")
    x, dy = rows_or_heads(x=x, dy=dy)
    rows, cols = rstd.numel(), x.shape[-1]
    rowwise = extras.as_rows(shape)
    statistics = {"mean": mean, "rstd": rstd}
    matrices = {"x": x, "dy": dy} | rowwise.matrices
    parameters = {"weight": weight, "weight1": extras.weight1, "bias": extras.bias}
    check(matrices, parameters, statistics, has_bias=has_bias, zero_centred=zero_centred)
    rowwise.check(weight, has_bias=has_bias)
    likes = gradients_like(x, weight, extras, has_bias=has_bias, dx_alone=dx_alone)
    gradients = NormGradients.made(likes, lambda like: output(like, (rows, cols) if like is x else (cols,)))
    if rows == 0:
        for gradient in gradients:
            if gradient is not None:
                gradient.zero_()
    else:
        if launch is None:
            launch = choose_for(dy, x, weight, has_bias, layer=mean is not None, sm_margin=sm_margin, extras=rowwise)
        with torch.cuda.device_of(x):  # Triton launches on the current device; this does nothing for a CPU tensor
            tensors = CallTensors(gradients, dy, x, weight, mean, rstd, zero_centred, rowwise)
            calls = launch.calls(tensors)
            if IS_CHECKED and x.is_cuda:
                calls = between_marks(calls, x.device)
            kernels = [call.start() for call in calls]
        if kind == "with extras":
            given, outputs = (*given, *extras.tensors), gradients.shaped(shape)
        else:
            outputs = gradients.shaped(shape)[:3]
        bound.keep(calls, kernels, given, outputs, tensors.scratch, *decided_by)
        if launched is not None:
            launched.extend(kernels)
    return gradients.shaped(shape).rounded(likes)


def choose_for(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    has_bias: bool,
    *,
    layer: bool,
    sm_margin: int | None = None,
    extras: Extras = NO_EXTRAS,
) -> Launch:
    """The launch that `norm_backward` chooses for these tensors: a tuned one where there is one, else the default.

    Launches are tuned for the whole device, so that with a margin the default is chosen.
    """
    margin = margin_of_environment() if sm_margin is None else sm_margin
    problem, gpu = problem_for(dy, x, weight, has_bias, layer=layer, extras=extras), gpu_of(x.device, margin)
    path = os.environ.get(LAUNCHES)
    if path and not margin:
        from .tuned import find  # needs pydantic, which a model without such a file does not

        if tuned := find(path, name_of(x.device), problem, gpu):
            return tuned.launch
    return choose(problem, gpu)


def problem_for(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    has_bias: bool,
    *,
    layer: bool,
    extras: Extras = NO_EXTRAS,
) -> Problem:
    """What a launch for these tensors is chosen for; x and dy `(rows, cols)` or `(tokens, heads, cols)`."""
    return Problem(
        norm="layer" if layer else "rms",
        rows=math.prod(x.shape[:-1]),
        cols=x.shape[-1],
        dtype=NAMES[x.dtype],
        weight_dtype=None if weight is None else NAMES[weight.dtype],
        bias=has_bias,
        in_pairs=x.dim() == 2 and _in_pairs(weight, extras.weight1, matrices=(dy, x, *extras.rows.values())),
        extras=tuple(extras.rows),
        norm_first=extras.norm_first,
    )


def _in_pairs(*vectors: torch.Tensor | None, matrices: tuple[torch.Tensor, ...]) -> bool:
    """Whether two neighbours can be read at once everywhere: rows begin at an even element, on a whole word."""
    if any(matrix.shape[1] % 2 or matrix.stride(0) % 2 for matrix in matrices):
        return False
    tensors = [*matrices, *(vector for vector in vectors if vector is not None)]
    return all(tensor.data_ptr() % (2 * tensor.itemsize) == 0 for tensor in tensors)
