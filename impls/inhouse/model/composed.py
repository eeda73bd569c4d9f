"""The forward made of torch's own operations, for who differentiates it in other ways than autograd's backward.

The transforms of torch.func (grad, vmap, jvp, and what is made of these) and dual numbers want the derivatives of the
forward, or of its backward. torch has them of its operations; the kernels have one derivative, and would give zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn import functional

from .operands import NormOptions, Operands

_private: Any = torch._C  # pyright: ignore[reportPrivateUsage]
# Whether a tensor stands for many, as those that come back to autograd.grad(is_grads_batched=True).
is_batched: Callable[[torch.Tensor], bool] = _private._functorch.is_legacy_batchedtensor


def refuse_dual(*came_back: torch.Tensor | None) -> None:
    """Raise RuntimeError for gradients that are dual numbers, of a forward that was not composed."""
    if forward_ad._current_level >= 0:  # pyright: ignore[reportPrivateUsage]
        for each in came_back:
            if each is not None and forward_ad.unpack_dual(each).tangent is not None:
                raise RuntimeError("this backward takes no dual numbers: call the norm itself within the dual level")


def composed(operands: Operands, options: NormOptions) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """y, y1 and total, as `norm_forward` rounds them."""
    x, weight, bias, residual, mask, x1, mask1, weight1, bias1, z = operands
    total = _dropped(x, mask, options)
    if x1 is not None:
        total = total + _dropped(x1, mask1, options)
    if residual is not None:
        total = total + residual.float()
    total = total.to(x.dtype)
    entering, gate = total.float(), None if z is None else functional.silu(z.float())
    if gate is not None and not options.norm_before_gate:
        entering, gate = entering * gate, None
    if options.layer:
        xhat = functional.layer_norm(entering, entering.shape[-1:], eps=options.eps)
    else:  # of operations that have all derivatives on every device
        xhat = entering * (entering.square().mean(-1, keepdim=True) + options.eps).rsqrt()

    def scaled(weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        y = xhat if weight is None else xhat * (weight.float() + float(options.zero_centred))
        y = y if bias is None else y + bias.float()
        return (y if gate is None else y * gate).to(x.dtype)

    y1 = None if weight1 is None else scaled(weight1, bias1)
    return scaled(weight, bias), y1, total if operands.is_sum else None


def _dropped(branch: torch.Tensor, mask: torch.Tensor | None, options: NormOptions) -> torch.Tensor:
    return branch.float() if mask is None else branch.float() * mask / (1 - options.dropout_p)
