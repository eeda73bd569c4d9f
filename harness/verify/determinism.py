"""Whether a backward gives the same bits again."""

from __future__ import annotations

import torch

from harness.cases import Grads

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bits(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bit patterns: NaN equals the same NaN, 0 differs from -0."""
    return first.dtype == other.dtype and torch.equal(_bits(first), _bits(other))


def differing(first: Grads, other: Grads) -> list[str]:
    """Names of the gradients whose bits differ between two runs."""
    pairs = {name: (getattr(first, name), getattr(other, name)) for name in ("dx", "dweight", "dbias")}
    return [name for name, (a, b) in pairs.items() if a is not None and not (b is not None and same_bits(a, b))]


def kept(grads: Grads) -> Grads:
    """A copy that later runs cannot overwrite."""
    return Grads(*(None if t is None else t.clone() for t in (grads.dx, grads.dweight, grads.dbias)))  # pyright: ignore


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()])
