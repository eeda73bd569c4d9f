"""The backward of a library's autograd function, called without the engine of autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.cases import Grads, Inputs

if TYPE_CHECKING:
    import torch


def recorded(inputs: Inputs, forward: Callable[..., torch.Tensor]) -> tuple[Callable[[], Grads], str]:
    """Run `forward(x, weight, bias)` under autograd; return the backward that it recorded, and its function's name.

    The function has to give the gradients of x, weight and bias, in this order, before any others. Raises TypeError
    where what was recorded last is not an autograd function of Python's.
    """
    import torch

    case, dy = inputs.case, inputs.dy
    given = (inputs.x, inputs.weight, inputs.bias)
    leaves = [None if tensor is None else tensor.detach().requires_grad_() for tensor in given]
    with torch.enable_grad():
        y: Any = forward(*leaves)
    function = getattr(type(y.grad_fn), "_forward_cls", None)
    if function is None:
        raise TypeError(f"the forward ends in {type(y.grad_fn).__name__}, which is no autograd function of Python's")

    @torch.no_grad()  # as the engine calls it
    def backward() -> Grads:
        dx, *parameters = y.grad_fn.apply(dy)  # what the forward saved lives as long as y
        dweight, dbias, *_ = [*parameters, None, None]
        return Grads(dx, dweight if case.weight else None, dbias if case.bias else None)

    return backward, f"{function.__module__}.{function.__name__}"
