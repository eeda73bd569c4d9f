"""What a norm takes, gives and keeps for its backward, with all that a model has around it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..tensors import gradients_like

PLAIN_OPERANDS = 3  # x, weight and bias, of a norm with nothing around it
LIKE_X = ("residual", "x1", "z", "mask", "mask1")  # operands in x's shape


class Operands(NamedTuple):
    """What a forward reads; None is what there is not.

    x and z have rows at any distance, or `(tokens, heads, cols)` x has two; all others are contiguous.

    x                `(..., cols)`: what is normalised, or a branch of it
    weight, bias     `(cols)`
    residual, x1     in x's shape: they are added to x before it is normalised
    mask, mask1      in x's shape, bool: where dropout keeps an element of x, and of x1
    weight1, bias1   `(cols)`, of a second norm of the same numbers
    z                in x's shape: the gate
    """

    x: torch.Tensor
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    x1: torch.Tensor | None = None
    mask1: torch.Tensor | None = None
    weight1: torch.Tensor | None = None
    bias1: torch.Tensor | None = None
    z: torch.Tensor | None = None

    @property
    def given(self) -> tuple[torch.Tensor | None, ...]:
        """All of them, or x, weight and bias alone where nothing is around the norm."""
        return self if any(each is not None for each in self[PLAIN_OPERANDS:]) else self[:PLAIN_OPERANDS]

    @property
    def is_sum(self) -> bool:
        """Whether what is normalised is another tensor than x."""
        return self.residual is not None or self.mask is not None or self.x1 is not None


class NormOptions(NamedTuple):
    """What decides a norm besides its operands; `NormExtras` of norms.py says what each is."""

    layer: bool
    eps: float
    zero_centred: bool = False
    dropout_p: float = 0.0
    norm_before_gate: bool = True
    sm_margin: int | None = None


class Outputs(NamedTuple):
    """What a forward writes: y, that of a second norm, what is normalised where it is not x, statistics of its rows."""

    y: torch.Tensor
    y1: torch.Tensor | None
    total: torch.Tensor | None
    mean: torch.Tensor | None
    rstd: torch.Tensor


class Saved(NamedTuple):
    """What a backward takes of its forward: x is what was normalised; of a bias only a gate behind the norm asks."""

    x: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    mask: torch.Tensor | None
    mask1: torch.Tensor | None
    weight1: torch.Tensor | None
    z: torch.Tensor | None
    mean: torch.Tensor | None
    rstd: torch.Tensor

    @classmethod
    def of(cls, operands: Operands, options: NormOptions, outputs: Outputs) -> Saved:
        """What is kept of one forward."""
        x, weight, bias, _, mask, _, mask1, weight1, _, z = operands
        _, _, total, mean, rstd = outputs
        bias = bias if z is not None and options.norm_before_gate else None
        return cls(x if total is None else total, weight, bias, mask, mask1, weight1, z, mean, rstd)

    def gradients_like(self, *, has_bias: bool, dx_alone: bool) -> dict[str, torch.Tensor | None]:
        """By gradient, what has its shape and dtype; None where there is no such gradient."""
        return gradients_like(self.x, self.weight, self, has_bias=has_bias, dx_alone=dx_alone)
