"""The backward of a library's autograd function, called without the engine of autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from harness.cases import Grads, Inputs, UnsupportedError

if TYPE_CHECKING:
    import torch

LEAVES = ("x", "weight", "bias", "weight1", "bias1", "z")
OUTPUT_GRADIENTS = ("dy", "dy1", "dres")
PLAIN = ("dx", "dweight", "dbias")


def recorded(
    inputs: Inputs, forward: Callable[..., Any], gives: Sequence[str | None] = PLAIN
) -> tuple[Callable[[], Grads], str]:
    """Run a forward under autograd; return the backward that it recorded, and its function's name.

    `forward` takes those of x, weight, bias, weight1, bias1 and z that the case has, by name, and x, weight and bias in
    any case. It returns y, of parallel norms the other one too, and what goes on as the residual, as the case has them.
    `gives` names the gradients in the order in which the function gives them, None for one that nobody asks for. Raises
    TypeError where what was recorded last is not an autograd function of Python's.
    """
    import torch

    given = inputs.tensors()
    leaves: dict[str, Any] = dict.fromkeys(("x", "weight", "bias"))
    leaves |= {name: given[name].detach().requires_grad_() for name in LEAVES if name in given}
    upstream = [given[name] for name in OUTPUT_GRADIENTS if name in given]
    with torch.enable_grad():
        outputs: Any = forward(**leaves)
    # y goes: what follows a norm keeps it, or nothing does. What the forward saved lives as long as its function.
    recorded_last: Any = (outputs if isinstance(outputs, torch.Tensor) else outputs[0]).grad_fn
    del outputs
    function = getattr(type(recorded_last), "_forward_cls", None)
    if function is None:
        raise TypeError(
            f"the forward ends in {type(recorded_last).__name__}, which is no autograd function of Python's"
        )
    wanted = {f"d{name}" for name, leaf in leaves.items() if leaf is not None}

    @torch.no_grad()  # as the engine calls it
    def backward() -> Grads:
        gradients = recorded_last.apply(*upstream)
        named = {name: gradient for name, gradient in zip(gives, gradients, strict=False) if name in wanted}
        plain = {name: named.pop(name, None) for name in PLAIN}
        return Grads(**plain, extra=named)  # pyright: ignore[reportArgumentType]  # dx is always given

    return backward, f"{function.__module__}.{function.__name__}"


def forward_and_backward(inputs: Inputs, norm: Callable[..., Any]) -> Callable[[], Grads]:
    """A call of a library's norm of x, weight and bias under autograd, and of its backward: of a plain case alone."""
    import torch

    if inputs.case.features:
        raise UnsupportedError("forward and backward together are measured of plain norms")
    given = {"x": inputs.x, "weight": inputs.weight, "bias": inputs.bias}
    leaves = {name: None if tensor is None else tensor.detach().requires_grad_() for name, tensor in given.items()}
    wanted = {name: leaf for name, leaf in leaves.items() if leaf is not None}

    def both() -> Grads:
        with torch.enable_grad():
            y = norm(**leaves)
        gradients = torch.autograd.grad(y, list(wanted.values()), inputs.dy)
        found = dict(zip(wanted, gradients, strict=True))
        return Grads(found["x"], found.get("weight"), found.get("bias"))

    return both


def behind_residual(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward that takes a branch and a residual, of which x is the sum."""

    def with_residual(x: torch.Tensor, **parameters: Any) -> Any:
        import torch

        return forward(torch.zeros_like(x), x, **parameters)

    return with_residual
