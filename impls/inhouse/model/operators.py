"""Forward and backward as custom operators of torch, each with a fake implementation.

torch.compile keeps them whole in its graph, and functional collectives, FSDP and activation checkpointing see ordinary
tensors in and out. What an operator returns is always there: where it is not, it is empty.
"""

from __future__ import annotations

from typing import Any, get_type_hints

import torch

from ..tensors import NormGradients
from . import gradients
from .composed import refuse_dual
from .forward import check_operands, empty_outputs, norm_forward
from .gradients import Gradient
from .operands import NormOptions, Operands, Outputs, Saved

SCHEMA_TYPES: dict[Any, str] = {
    torch.Tensor: "Tensor",
    torch.Tensor | None: "Tensor?",
    int | None: "int?",
    bool: "bool",
    float: "float",
}


def schema_of(*tuples: type) -> str:
    """The arguments of an operator, from the fields of its named tuples."""
    fields = [field for each in tuples for field in get_type_hints(each).items()]
    return ", ".join(f"{SCHEMA_TYPES[kind]} {name}" for name, kind in fields)


def results_of(fields: type) -> str:
    """The results of an operator, a tensor for each field."""
    return ", ".join(["Tensor"] * len(get_type_hints(fields)))


FORWARD = f"({schema_of(Operands, NormOptions)}) -> ({results_of(Outputs)})"
ARGUMENTS = f"Tensor dy, Tensor? dy1, Tensor? dres, {schema_of(Saved, NormOptions)}, bool has_bias, bool dx_alone"
BACKWARD = f"({ARGUMENTS}) -> ({results_of(NormGradients)})"

Tensors = tuple[torch.Tensor, ...]


@torch.library.custom_op("normbwd::norm", mutates_args=(), schema=FORWARD)
def norm(*arguments: Any) -> Tensors:
    """The forward."""
    operands, options = _read(arguments)
    return _filled(norm_forward(operands, options), operands.x)


@torch.library.register_fake("normbwd::norm")
def _(*arguments: Any) -> Tensors:
    # Here too: a parameter on the meta device, which nobody has filled yet, gets here and not to the kernel.
    operands, options = _read(arguments)
    check_operands(operands, options)
    return _filled(empty_outputs(operands, options, _empty), operands.x)


@torch.library.custom_op("normbwd::norm_backward", mutates_args=(), schema=BACKWARD)
def norm_backward(dy: torch.Tensor, dy1: Gradient, dres: Gradient, *rest: Any) -> Tensors:
    """The backward."""
    saved, options, decided = _read_saved(rest)
    return _filled(gradients.gradients(dy, dy1, dres, saved, options, **decided), dy)


@torch.library.register_fake("normbwd::norm_backward")
def _(dy: torch.Tensor, dy1: Gradient, dres: Gradient, *rest: Any) -> Tensors:  # noqa: ARG001
    saved, _, decided = _read_saved(rest)
    return _filled(NormGradients.made(saved.gradients_like(**decided), lambda like: _empty(like, like.shape)), dy)


def _empty(like: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device)


def _read(arguments: tuple[Any, ...]) -> tuple[Operands, NormOptions]:
    tensors = len(Operands._fields)
    return Operands(*arguments[:tensors]), NormOptions(*arguments[tensors:])


def _read_saved(arguments: tuple[Any, ...]) -> tuple[Saved, NormOptions, dict[str, bool]]:
    tensors = len(Saved._fields)
    *options, has_bias, dx_alone = arguments[tensors:]
    return Saved(*arguments[:tensors]), NormOptions(*options), {"has_bias": has_bias, "dx_alone": dx_alone}


def _filled(tensors: tuple[torch.Tensor | None, ...], like: torch.Tensor) -> Tensors:
    """All tensors, with an empty one of its own for each that is not there."""
    return tuple(like.new_empty(0) if tensor is None else tensor for tensor in tensors)


# ------------------------------------------------------------------------------------------------ the derivative


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
    operands, options = _read(inputs)
    y, y1, total, mean, rstd = output
    has_y1, has_total = operands.weight1 is not None, operands.is_sum
    absent = [tensor for tensor, is_there in ((y1, has_y1), (total, has_total)) if not is_there]
    ctx.mark_non_differentiable(mean, rstd, *absent)
    ctx.set_materialize_grads(False)
    outputs = Outputs(y, y1, total if has_total else None, mean if options.layer else None, rstd)
    ctx.options, ctx.has_bias = options, operands.bias is not None
    ctx.save_for_backward(*Saved.of(operands, options, outputs))


def _differentiate(ctx: Any, dy: Gradient, dy1: Gradient, dres: Gradient, *_: Gradient) -> tuple[Gradient, ...]:
    wanted = ctx.needs_input_grad[: len(Operands._fields)]
    decided = {"has_bias": ctx.has_bias, "dx_alone": gradients.is_dx_alone(wanted)}
    found = backward_by_operator(dy, dy1, dres, Saved(*ctx.saved_tensors), ctx.options, **decided)
    return (*gradients.of_operands(found, wanted), *[None] * len(NormOptions._fields))


def backward_by_operator(
    dy: Gradient, dy1: Gradient, dres: Gradient, saved: Saved, options: NormOptions, *, has_bias: bool, dx_alone: bool
) -> NormGradients:
    """Run the backward; what comes back may have any strides, and be None where nobody uses an output.

    Raises RuntimeError for dual numbers, whose tangents an operator would drop.
    """
    refuse_dual(dy, dy1, dres)
    dy, dy1 = gradients.complete(dy, dy1, saved)
    came_back = [None if each is None else _rows(each, saved.x) for each in (dy, dy1, dres)]
    found = torch.ops.normbwd.norm_backward(*came_back, *saved, *options, has_bias, dx_alone)
    likes = saved.gradients_like(has_bias=has_bias, dx_alone=dx_alone)
    dx, *others = [None if like is None else each for each, like in zip(found, likes.values(), strict=True)]
    assert dx is not None, "there is always a dx"
    return NormGradients(dx, *others)


def _rows(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A gradient in x's shape with rows as the kernels take them: `y.sum()` sends back one number, expanded."""
    gradient = gradient.reshape(x.shape)
    return gradient if gradient.is_contiguous() else gradient.contiguous()


torch.library.register_autograd("normbwd::norm", _differentiate, setup_context=_keep)
