"""`rms_norm` and `layer_norm` under autograd and torch.compile.

Both are operators of torch (operators.py). Such an operator costs an eager call on the host many times what its kernel
does. So where only autograd observes it, an autograd function takes its place, with the same kernels.
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

import torch

from .. import bound
from ..device import is_observed, is_transformed
from .composed import composed, is_batched
from .forward import check_operands, heads_apart, norm_forward
from .gradients import complete, gradients, is_dx_alone, of_operands, plain_gradients
from .operands import LIKE_X, PLAIN_OPERANDS, NormOptions, Operands, Outputs, Saved
from .operators import backward_by_operator

PLAIN = (torch.Tensor, torch.nn.Parameter, type(None))  # other classes have their own ways with operators


class NormExtras(TypedDict, total=False):
    """What a model has around a norm, as `rms_norm` and `layer_norm` take it.

    zero_centred      the factor is 1 + weight
    residual          is added to x, and the sum is normalised; in x's shape and dtype
    return_residual   also return what was normalised, the residual of the next norm: x where nothing is added
    dropout_p         drop each element of x, and of x1, with this probability before it is added; torch's generator
                      draws. For training alone: 0 elsewhere
    x1                a second branch, which is added as well
    weight1, bias1    of a second norm of the same numbers, whose y1 is returned too; a bias where the first has one
    z                 a gate: y is multiplied by silu(z), in x's shape and dtype
    norm_before_gate  False: not y, but what is normalised is multiplied by silu(z)
    sm_margin         multiprocessors that the backward leaves to other kernels; by default what NORMBWD_SM_MARGIN says
    """

    zero_centred: bool
    residual: torch.Tensor | None
    return_residual: bool
    dropout_p: float
    x1: torch.Tensor | None
    weight1: torch.Tensor | None
    bias1: torch.Tensor | None
    z: torch.Tensor | None
    norm_before_gate: bool
    sm_margin: int | None


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, eps: float | None = 1e-6, **extras: Unpack[NormExtras]
) -> Any:
    """Normalise the last dimension by its root mean square.

    x `(..., cols)` bf16, fp16 or fp32, weight `(cols)` of any of these, or None. y has x's shape and dtype. Heads of a
    projection's slice are normalised where they lie. Returns y; or a tuple of y, y1 where there is weight1, and the
    residual with `return_residual`. eps None is that of fp32, as torch takes it. Raises ValueError as `norm_backward`
    does, and for what is around and does not fit.
    """
    return _norm(x, weight, None, torch.finfo(torch.float32).eps if eps is None else eps, False, **extras)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    **extras: Unpack[NormExtras],
) -> Any:
    """Normalise the last dimension to mean 0 and variance 1, with a weight and a bias if there are any.

    Shapes, dtypes and what is returned as for `rms_norm`; bias `(cols)` has weight's dtype.
    """
    if bias is not None and (weight is None or bias.dtype != weight.dtype):
        raise ValueError("a bias needs a weight of the same dtype")
    return _norm(x, weight, bias, eps, True, **extras)


def _norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float | None,
    layer: bool,
    *,
    zero_centred: bool = False,
    residual: torch.Tensor | None = None,
    return_residual: bool = False,
    dropout_p: float = 0.0,
    x1: torch.Tensor | None = None,
    weight1: torch.Tensor | None = None,
    bias1: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    norm_before_gate: bool = True,
    sm_margin: int | None = None,
) -> Any:
    if eps is None:
        raise ValueError("eps must be a number, not None, which rms_norm alone takes")
    options = NormOptions(layer, eps, zero_centred, dropout_p, norm_before_gate, sm_margin)
    if residual is x1 is weight1 is bias1 is z is None and not dropout_p:
        y = _run((x, weight, bias), options)
        return (y, x) if return_residual else y
    mask = mask1 = None
    if dropout_p:
        mask, mask1 = _drawn(x, dropout_p), _drawn(x1, dropout_p)
    operands = Operands(x, weight, bias, residual, mask, x1, mask1, weight1, bias1, z)
    found = _run(operands, options)
    y, y1, total = found if isinstance(found, tuple) else (found, None, None)
    outputs = [y]
    if weight1 is not None:
        outputs.append(y1)
    if return_residual:
        outputs.append(total if operands.is_sum else x)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _drawn(branch: torch.Tensor | None, p: float) -> torch.Tensor | None:
    """Where dropout keeps an element."""
    if branch is None:
        return None
    if not 0 <= p < 1 or branch.is_nested:
        raise ValueError(f"dropout_p must be at least 0 and below 1, and 0 of a nested tensor, not {p}")
    empty = torch.empty_like(branch, dtype=torch.bool, requires_grad=False, memory_format=torch.contiguous_format)
    return empty.bernoulli_(1 - p)


def _run(given: tuple[Any, ...], options: NormOptions) -> Any:
    """Run the forward: y of x, weight and bias; of all operands y, y1 and total, as far as the norm has them."""
    if not (torch.compiler.is_compiling() or is_observed()):
        kept = bound.find(given, "forward", options)
        if kept is not None or _is_plain(*given):
            return _eager_norm(options, kept, *given)
    operands = Operands(*given)
    x = operands.x
    if x.is_nested and x.layout != torch.jagged:
        raise ValueError("a nested tensor must have layout=torch.jagged")
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"x must have a last dimension of at least 1, not {tuple(x.shape)}")
    for name, each in operands._asdict().items():
        if not isinstance(each, torch.Tensor | None):
            raise ValueError(f"{name} must be a tensor, not {each!r}: there is no normalized_shape before it")
        if name in LIKE_X and each is not None and each.shape != x.shape:
            raise ValueError(f"{name} must have x's shape {tuple(x.shape)}, not {tuple(each.shape)}")
    if any(type(each) not in PLAIN for each in given):
        from .wrappers import unwrapped  # needs torch.distributed, which plain tensors do not

        within = unwrapped(operands)
        if within is not None:
            inner, wrap = within
            found = _run(inner[: len(given)], options)
            outputs = found if isinstance(found, tuple) else (found,)
            wrapped = [None if each is None else wrap(each) for each in outputs]
            return tuple(wrapped) if isinstance(found, tuple) else wrapped[0]
    rows = _as_rows(operands)
    if is_transformed():
        check_operands(rows, options)
        y, y1, total = composed(operands, options)
        return y if len(given) == PLAIN_OPERANDS else (y, y1, total)
    y, y1, total, *_ = torch.ops.normbwd.norm(*rows, *options)  # of operators.py; empty is what there is not
    y = _in_shape(y, x.shape)
    if len(given) == PLAIN_OPERANDS:
        return y
    y1 = None if operands.weight1 is None else _in_shape(y1, x.shape)
    return y, y1, _in_shape(total, x.shape) if operands.is_sum else None


def _in_shape(tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """The tensor in a shape; itself where it has it, because FSDP warns of modules that return views."""
    return tensor if tensor.shape == shape else tensor.view(shape)


def _is_plain(x: torch.Tensor, *others: torch.Tensor | None) -> bool:
    """Whether these are tensors of torch's own classes, x on a GPU, that the kernels take without a view or a copy."""
    if type(x) not in PLAIN or not x.is_cuda or x.dim() < 2 or x.is_nested or not x.numel():
        return False
    if not x.is_contiguous() and (x.stride(-1) != 1 or not heads_apart(x)):
        return False
    return all(type(each) in PLAIN and (each is None or each.is_contiguous()) for each in others)


def _as_rows(operands: Operands) -> Operands:
    """Activations as the kernels take them: rows, or heads of tokens; copies where they must be."""
    x = operands.x
    if x.dim() == 1 or not x.is_contiguous():
        x = x if x.stride(-1) == 1 else x.contiguous()
        x = x.view(-1, *x.shape[-2:]) if x.dim() > 2 and heads_apart(x) else x.reshape(-1, x.shape[-1])
    rows: dict[str, torch.Tensor] = {"x": x}
    for name in LIKE_X:
        each = getattr(operands, name)
        if each is not None:
            rows[name] = each.reshape(x.shape).contiguous()
    return operands._replace(**rows)


class _EagerNorm(torch.autograd.Function):  # pyright: ignore[reportUntypedBaseClass]
    """Both operators, without torch's dispatcher; a norm with nothing around it has three operands here."""

    @staticmethod
    def forward(ctx: Any, options: NormOptions, kept: Any, *tensors: Any) -> Any:
        outputs: Any = None
        if kept is not None:
            call, addresses, stream = kept
            outputs = call.start(addresses, stream)
        if outputs is None:
            outputs = norm_forward(Operands(*tensors), options)
        y, y1, total, mean, rstd = outputs
        ctx.decided = options, tensors[2] is not None
        if len(tensors) == PLAIN_OPERANDS:
            x, weight, _ = tensors
            ctx.save_for_backward(x, weight, mean, rstd)
            return y
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*Saved.of(Operands(*tensors), options, Outputs(*outputs)))
        return y if y1 is total is None else (y, y1, total)

    @staticmethod
    def backward(ctx: Any, *came_back: Any) -> tuple[torch.Tensor | None, ...]:
        options, has_bias = ctx.decided
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[2:]
        decided = {"has_bias": has_bias, "dx_alone": is_dx_alone(wanted)}
        # Else the operator: its own derivative, which there is not, would be asked for; or operators are observed.
        is_compiled = torch.compiler.is_compiling()
        is_eager = not (is_compiled or torch.is_grad_enabled() or is_observed()) and _are_rows(came_back)
        saved: Any = tensors
        if len(tensors) == 4:
            x, weight, mean, rstd = tensors
            if is_eager:
                return (None, None, *plain_gradients((came_back[0], *tensors), options, **decided))
            saved = x, weight, None, None, None, None, None, mean, rstd
        dy, dy1, dres = came_back if len(came_back) == 3 else (*came_back, None, None)
        saved = Saved(*saved)
        if is_eager:
            found = gradients(*complete(dy, dy1, saved), dres, saved, options, **decided)
        else:
            found = backward_by_operator(dy, dy1, dres, saved, options, **decided)
        return (None, None, *of_operands(found, wanted))


def _are_rows(gradients: tuple[torch.Tensor | None, ...]) -> bool:
    """Whether the kernels take these as they came back, those that did."""
    for each in gradients:
        if each is not None and (type(each) is not torch.Tensor or is_batched(each) or not each.is_contiguous()):
            return False
    return True


# Without what `Function.apply` does for functorch's transforms, which are looked for above.
_eager_norm: Any = getattr(super(torch.autograd.Function, _EagerNorm), "apply")  # noqa: B009
