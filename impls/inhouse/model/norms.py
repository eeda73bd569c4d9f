"""`rms_norm` and `layer_norm` under autograd and torch.compile.

Forward and backward are custom operators of torch, each with a fake implementation: torch.compile keeps them whole in
its graph, and functional collectives, FSDP and activation checkpointing see ordinary tensors in and out.
"""

from __future__ import annotations

from typing import Any

import torch

from ..backward import norm_backward
from ..tensors import check
from .forward import norm_forward


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6, *, zero_centred: bool = False
) -> torch.Tensor:
    """Normalise the last dimension by its root mean square.

    x `(..., cols)` bf16, fp16 or fp32, weight `(cols)` of any of these, or None; with `zero_centred` the factor is
    1 + weight. y has x's shape and dtype. Raises ValueError as `norm_backward` does.
    """
    return _norm(x, weight, None, eps, layer=False, zero_centred=zero_centred)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    zero_centred: bool = False,
) -> torch.Tensor:
    """Normalise the last dimension to mean 0 and variance 1, with a weight and a bias if there are any.

    Shapes and dtypes as for `rms_norm`; bias `(cols)` has weight's dtype.
    """
    if bias is not None and (weight is None or bias.dtype != weight.dtype):
        raise ValueError("a bias needs a weight of the same dtype")
    return _norm(x, weight, bias, eps, layer=True, zero_centred=zero_centred)


def _norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    *,
    layer: bool,
    zero_centred: bool,
) -> torch.Tensor:
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"x must have a last dimension of at least 1, not {tuple(x.shape)}")
    flat = x.reshape(-1, x.shape[-1])
    y, _, _ = torch.ops.normbwd.norm(
        flat if flat.stride(-1) == 1 else flat.contiguous(), weight, bias, eps, layer, zero_centred
    )
    return y.view(x.shape)


Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@torch.library.custom_op("normbwd::norm", mutates_args=())
def norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    layer: bool,
    zero_centred: bool,
) -> Three:
    """The forward: y, and mean (empty for RMSNorm) and rstd for the backward."""
    return norm_forward(x, weight, bias, eps, layer=layer, zero_centred=zero_centred)


@norm.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    layer: bool,
    zero_centred: bool,
) -> Three:
    # Here too: a parameter on the meta device, which nobody has filled yet, gets here and not to the kernel.
    check({"x": x}, {"weight": weight, "bias": bias}, has_bias=bias is not None, zero_centred=zero_centred)
    rows, cols = x.shape
    statistics = torch.empty(rows, dtype=torch.float32, device=x.device)
    mean = statistics if layer else statistics.new_empty(0)
    return torch.empty((rows, cols), dtype=x.dtype, device=x.device), mean, torch.empty_like(statistics)


@torch.library.custom_op("normbwd::norm_backward", mutates_args=())
def backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    has_bias: bool,
    layer: bool,
    zero_centred: bool,
) -> Three:
    """The backward: dx, and dweight and dbias, each empty where there is no such parameter."""
    dx, dweight, dbias = norm_backward(
        dy, x, weight, mean if layer else None, rstd, has_bias=has_bias, zero_centred=zero_centred
    )
    nothing = dx.new_empty(0)
    return dx, nothing if dweight is None else dweight, nothing.clone() if dbias is None else dbias


@backward.register_fake
def _(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    has_bias: bool,
    layer: bool,
    zero_centred: bool,
) -> Three:
    nothing = x.new_empty(0)
    dweight = nothing if weight is None else torch.empty_like(weight)
    dbias = torch.empty_like(weight) if has_bias and weight is not None else nothing.clone()
    return x.new_empty(x.shape), dweight, dbias


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Three) -> None:
    x, weight, bias, _, ctx.layer, ctx.zero_centred = inputs
    _, mean, rstd = output
    ctx.has_bias = bias is not None
    ctx.mark_non_differentiable(mean, rstd)
    ctx.save_for_backward(x, weight, mean, rstd)


def _differentiate(ctx: Any, dy: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight, mean, rstd = ctx.saved_tensors
    dy = dy if dy.stride(-1) == 1 else dy.contiguous()  # `y.sum()` sends back one number, expanded
    dx, dweight, dbias = torch.ops.normbwd.norm_backward(
        dy, x, weight, mean, rstd, ctx.has_bias, ctx.layer, ctx.zero_centred
    )
    return dx, None if weight is None else dweight, dbias if ctx.has_bias else None, None, None, None


norm.register_autograd(_differentiate, setup_context=_keep)
