"""`rms_norm` and `layer_norm` under autograd and torch.compile.

Forward and backward are custom operators of torch, each with a fake implementation: torch.compile keeps them whole in
its graph, and functional collectives, FSDP and activation checkpointing see ordinary tensors in and out. Such an
operator costs an eager call on the host many times what its kernel does; so where nobody but autograd looks on, an
autograd function of its own takes its place, with the same kernels.
"""

from __future__ import annotations

from typing import Any

import torch

from ..backward import norm_backward
from ..device import is_looked_at
from ..tensors import check
from .forward import norm_forward

PLAIN = (torch.Tensor, torch.nn.Parameter, type(None))  # other classes have their own ways with operators


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
    if _is_plain(x, weight, bias):
        return _eager_norm(x, weight, bias, eps, layer, zero_centred)
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"x must have a last dimension of at least 1, not {tuple(x.shape)}")
    flat = x.reshape(-1, x.shape[-1])
    y, _, _ = torch.ops.normbwd.norm(
        flat if flat.stride(-1) == 1 else flat.contiguous(), weight, bias, eps, layer, zero_centred
    )
    return y.view(x.shape)


def _is_plain(x: torch.Tensor, *parameters: torch.Tensor | None) -> bool:
    """Whether these are tensors on a GPU, x in contiguous rows, at which nothing of torch looks but autograd."""
    if torch.compiler.is_compiling() or not x.is_cuda or x.dim() < 2 or not x.is_contiguous() or not x.numel():
        return False
    for each in parameters:
        if type(each) not in PLAIN:
            return False
    return type(x) in PLAIN and not is_looked_at()


class _EagerNorm(torch.autograd.Function):
    """Both operators, without torch's dispatcher."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        layer: bool,
        zero_centred: bool,
    ) -> torch.Tensor:
        y, mean, rstd = norm_forward(x, weight, bias, eps, layer=layer, zero_centred=zero_centred)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.has_bias, ctx.zero_centred = bias is not None, zero_centred
        return y

    @staticmethod
    def backward(ctx: Any, *dys: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (dy,) = dys
        x, weight, mean, rstd = ctx.saved_tensors
        if torch.is_grad_enabled() or not _is_plain(dy, x, weight):
            # The operator: its own derivative, which there is not, would be asked for; or somebody looks on.
            return _by_operator(dy, x, weight, mean, rstd, ctx.has_bias, ctx.zero_centred)
        dx, dweight, dbias = norm_backward(
            dy, x, weight, mean, rstd, has_bias=ctx.has_bias, zero_centred=ctx.zero_centred
        )
        return dx, dweight, dbias, None, None, None


# Without what `Function.apply` does for functorch's transforms, which are looked for above.
_eager_norm: Any = getattr(super(torch.autograd.Function, _EagerNorm), "apply")  # noqa: B009


def _by_operator(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    has_bias: bool,
    zero_centred: bool,
) -> tuple[torch.Tensor | None, ...]:
    """The gradients by the operator; dy has any strides."""
    cols = x.shape[-1]
    dy = dy.reshape(-1, cols)
    dy = dy if dy.stride(-1) == 1 else dy.contiguous()  # `y.sum()` sends back one number, expanded
    layer = mean is not None
    dx, dweight, dbias = torch.ops.normbwd.norm_backward(
        dy,
        x.reshape(-1, cols),
        weight,
        rstd.new_empty(0) if mean is None else mean,
        rstd,
        has_bias,
        layer,
        zero_centred,
    )
    return dx.view(x.shape), None if weight is None else dweight, dbias if has_bias else None, None, None, None


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
    y, mean, rstd = norm_forward(x, weight, bias, eps, layer=layer, zero_centred=zero_centred)
    return y, rstd.new_empty(0) if mean is None else mean, rstd


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
    return _by_operator(dy, x, weight, mean if ctx.layer else None, rstd, ctx.has_bias, ctx.zero_centred)


norm.register_autograd(_differentiate, setup_context=_keep)
