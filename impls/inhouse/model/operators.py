"""Forward and backward as custom operators of torch, each with a fake implementation.

torch.compile keeps them whole in its graph, and functional collectives, FSDP and activation checkpointing see ordinary
tensors in and out. What an operator returns is always there: where it is not, it is empty.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..tensors import AroundGradients
from . import gradients
from .forward import check_operands, norm_forward
from .operands import Operands, Options, Outputs, Saved

OPERANDS = (
    "Tensor x, Tensor? weight, Tensor? bias, Tensor? residual, Tensor? mask, Tensor? x1, Tensor? mask1, "
    "Tensor? weight1, Tensor? bias1, Tensor? z"
)
SAVED = (
    "Tensor x, Tensor? weight, Tensor? bias, Tensor? mask, Tensor? mask1, Tensor? weight1, Tensor? z, Tensor? mean, "
    "Tensor rstd"
)
OPTIONS = "bool layer, float eps, bool zero_centred, float dropout_p, bool norm_before_gate, int? sm_margin"
FORWARD = f"({OPERANDS}, {OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
OUTPUTS = ", ".join(["Tensor"] * len(AroundGradients._fields))
BACKWARD = f"(Tensor dy, Tensor? dy1, Tensor? dres, {SAVED}, {OPTIONS}, bool has_bias) -> ({OUTPUTS})"

Tensors = tuple[torch.Tensor, ...]


def by_operator(operands: Operands, options: Options) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run the forward: y, and y1 and total, each empty where it is none."""
    y, y1, total, _, _ = torch.ops.normbwd.norm(*operands, *options)
    return y, y1, total


@torch.library.custom_op("normbwd::norm", mutates_args=(), schema=FORWARD)
def norm(*arguments: Any) -> Tensors:
    """The forward."""
    operands, options = _read(arguments)
    return _filled(norm_forward(operands, options), operands.x)


@norm.register_fake
def _(*arguments: Any) -> Tensors:
    # Here too: a parameter on the meta device, which nobody has filled yet, gets here and not to the kernel.
    operands, options = _read(arguments)
    check_operands(operands, options)
    x = operands.x
    rstd = torch.empty(math.prod(x.shape[:-1]), dtype=torch.float32, device=x.device)
    like_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    outputs = Outputs(
        like_x,
        None if operands.weight1 is None else torch.empty_like(like_x),
        torch.empty_like(like_x) if operands.is_sum else None,
        torch.empty_like(rstd) if options.layer else None,
        rstd,
    )
    return _filled(outputs, x)


@torch.library.custom_op("normbwd::norm_backward", mutates_args=(), schema=BACKWARD)
def norm_backward(dy: torch.Tensor, dy1: torch.Tensor | None, dres: torch.Tensor | None, *rest: Any) -> Tensors:
    """The backward."""
    saved, options, has_bias = _read_saved(rest)
    return _filled(gradients.gradients(dy, dy1, dres, saved, options, has_bias=has_bias), dy)


@norm_backward.register_fake
def _(dy: torch.Tensor, dy1: torch.Tensor | None, dres: torch.Tensor | None, *rest: Any) -> Tensors:  # noqa: ARG001
    saved, _, has_bias = _read_saved(rest)
    x, weight, _, mask, mask1, weight1, z, _, _ = saved

    def rows() -> torch.Tensor:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)

    def like(parameter: torch.Tensor | None, *, is_there: bool = True) -> torch.Tensor | None:
        return None if parameter is None or not is_there else torch.empty_like(parameter)

    found = AroundGradients(
        dx=rows(),
        dweight=like(weight),
        dbias=like(weight, is_there=has_bias),
        dbranch=None if mask is None else rows(),
        dbranch1=None if mask1 is None else rows(),
        dweight1=like(weight1),
        dbias1=like(weight1, is_there=has_bias),
        dz=None if z is None else rows(),
    )
    return _filled(found, dy)


def _read(arguments: tuple[Any, ...]) -> tuple[Operands, Options]:
    tensors = len(Operands._fields)
    return Operands(*arguments[:tensors]), Options(*arguments[tensors:])


def _read_saved(arguments: tuple[Any, ...]) -> tuple[Saved, Options, bool]:
    tensors = len(Saved._fields)
    *options, has_bias = arguments[tensors:]
    return Saved(*arguments[:tensors]), Options(*options), has_bias


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


def _differentiate(
    ctx: Any, dy: torch.Tensor | None, dy1: torch.Tensor | None, dres: torch.Tensor | None, *_: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    found = backward_by_operator(dy, dy1, dres, Saved(*ctx.saved_tensors), ctx.options, has_bias=ctx.has_bias)
    wanted = ctx.needs_input_grad[: len(Operands._fields)]
    return (*gradients.of_operands(found, wanted), *[None] * len(Options._fields))


def backward_by_operator(
    dy: torch.Tensor | None,
    dy1: torch.Tensor | None,
    dres: torch.Tensor | None,
    saved: Saved,
    options: Options,
    *,
    has_bias: bool,
) -> AroundGradients:
    """Run the backward; what comes back may have any strides, and be None where nobody uses an output."""
    dy, dy1 = gradients.complete(dy, dy1, saved)
    came_back = [None if each is None else _rows(each, saved.x) for each in (dy, dy1, dres)]
    return AroundGradients(*torch.ops.normbwd.norm_backward(*came_back, *saved, *options, has_bias))._replace(
        **_absent(saved, has_bias=has_bias)
    )


def _rows(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A gradient in x's shape with rows as the kernels take them: `y.sum()` sends back one number, expanded."""
    gradient = gradient.reshape(x.shape)
    return gradient if gradient.is_contiguous() else gradient.contiguous()


def _absent(saved: Saved, *, has_bias: bool) -> dict[str, None]:
    """The gradients that the operator returns empty."""
    _, weight, _, mask, mask1, weight1, z, _, _ = saved
    there = {
        "dweight": weight is not None,
        "dbias": has_bias,
        "dbranch": mask is not None,
        "dbranch1": mask1 is not None,
        "dweight1": weight1 is not None,
        "dbias1": weight1 is not None and has_bias,
        "dz": z is not None,
    }
    return {name: None for name, is_there in there.items() if not is_there}


norm.register_autograd(_differentiate, setup_context=_keep)
