"""The backward of `norm_forward`: the gradients of its operands from those of its outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..backward import backward_with_extras, norm_backward
from ..tensors import Extras, NormGradients
from .operands import NormOptions, Saved

Gradient = torch.Tensor | None


def plain_gradients(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    options: NormOptions,
    *,
    has_bias: bool,
) -> tuple[torch.Tensor, Gradient, Gradient]:
    """Return dx, dweight and dbias of a norm with nothing around it."""
    zero_centred, sm_margin = options.zero_centred, options.sm_margin
    return norm_backward(dy, x, weight, mean, rstd, has_bias=has_bias, zero_centred=zero_centred, sm_margin=sm_margin)


def gradients(
    dy: torch.Tensor, dy1: Gradient, dres: Gradient, saved: Saved, options: NormOptions, *, has_bias: bool
) -> NormGradients:
    """Return all gradients that there are, given those of y, of y1, and of what was normalised."""
    x, weight, bias, mask, mask1, weight1, z, mean, rstd = saved
    if dres is mask is mask1 is weight1 is z is None:
        return NormGradients(*plain_gradients(dy, x, weight, mean, rstd, options, has_bias=has_bias))
    p, norm_first = 0.0 if mask is None else options.dropout_p, z is not None and options.norm_before_gate
    extras = Extras(dres, mask, mask1, dy1, weight1, z, bias, p, norm_first)
    given = dy, x, weight, mean, rstd, extras
    zero_centred, sm_margin = options.zero_centred, options.sm_margin
    return backward_with_extras(*given, has_bias=has_bias, zero_centred=zero_centred, sm_margin=sm_margin)


def complete(dy: Gradient, dy1: Gradient, saved: Saved) -> tuple[torch.Tensor, Gradient]:
    """The gradients of y and y1, 0 where nobody uses the one or the other."""
    dy = torch.zeros_like(saved.x, memory_format=torch.contiguous_format) if dy is None else dy
    return dy, torch.zeros_like(dy) if dy1 is None and saved.weight1 is not None else dy1


def of_operands(found: NormGradients, wanted: Sequence[bool]) -> list[Gradient]:
    """The gradients in the order of `Operands`, as many as `wanted` says, None where one is not.

    What was added up gets one gradient, but for a branch with dropout.
    """
    dx, dweight, dbias, dbranch, dbranch1, dweight1, dbias1, dz = found
    branch, branch1 = dx if dbranch is None else dbranch, dx if dbranch1 is None else dbranch1
    every = branch, dweight, dbias, dx, None, branch1, None, dweight1, dbias1, dz
    return [gradient if is_wanted else None for gradient, is_wanted in zip(every, wanted, strict=False)]
