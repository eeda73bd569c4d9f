"""The backward of `norm_forward`: the gradients of its operands from those of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..backward import backward_with_extras, norm_backward
from ..tensors import Extras, NormGradients
from .operands import NormOptions, Saved

Gradient = torch.Tensor | None


def plain_gradients(
    given: tuple[Any, ...], options: NormOptions, **decided: Any
) -> tuple[torch.Tensor, Gradient, Gradient]:
    """Return dx, dweight and dbias of a norm alone, of dy, x, weight, mean and rstd; `decided`: has_bias, dx_alone."""
    return norm_backward(*given, zero_centred=options.zero_centred, sm_margin=options.sm_margin, **decided)


def gradients(
    dy: torch.Tensor, dy1: Gradient, dres: Gradient, saved: Saved, options: NormOptions, **decided: Any
) -> NormGradients:
    """Return all gradients that there are, given those of y, of y1, and of what was normalised."""
    x, weight, bias, mask, mask1, weight1, z, mean, rstd = saved
    given: tuple[Any, ...] = dy, x, weight, mean, rstd
    if dres is mask is mask1 is weight1 is z is None:
        return NormGradients(*plain_gradients(given, options, **decided))
    p, norm_first = 0.0 if mask is None else options.dropout_p, z is not None and options.norm_before_gate
    given = (*given, Extras(dres, mask, mask1, dy1, weight1, z, bias, p, norm_first))
    return backward_with_extras(*given, zero_centred=options.zero_centred, sm_margin=options.sm_margin, **decided)


def is_dx_alone(wanted: Sequence[bool]) -> bool:
    """Whether no gradient of a parameter is wanted, of those of `Operands` or of its first ones."""
    return not any((*wanted[1:3], *wanted[7:9]))


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
