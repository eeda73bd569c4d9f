"""Tensors that wrap others: a norm of them is that of what each process, or each sequence, has of its rows.

A distributed tensor (DTensor) may be sharded in any dimension but the last, as sequence, context and data parallel
have it; parameters are whole on every process. Where rows are sharded, the gradient of a parameter is a partial sum.
A jagged nested tensor has its sequences behind each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from .operands import LIKE_X, Operands

Wrap = Callable[[torch.Tensor], torch.Tensor]


def unwrapped(operands: Operands) -> tuple[Operands, Wrap] | None:
    """What is within these tensors, and what wraps a result as x is; None where x is no such wrapper.

    Raises ValueError where x is one and another operand is not, or the other way round.
    """
    x = operands.x
    distributed = isinstance(x, DTensor)
    for name, each in operands._asdict().items():
        if each is not None and isinstance(each, DTensor) != distributed:
            raise ValueError(f"all are DTensors or none: x is {type(x).__name__}, {name} {type(each).__name__}")
        if each is not None and each.is_nested != (x.is_nested and (name == "x" or name in LIKE_X)):
            raise ValueError(f"what has x's shape is nested as x is, and parameters are not: {name}")
    if distributed:
        return _of_distributed(operands)
    return _of_jagged(operands) if x.is_nested else None


def _of_distributed(operands: Operands) -> tuple[Operands, Wrap]:
    x: Any = operands.x
    mesh, last = x.device_mesh, x.dim() - 1
    placements = [each if type(each) is Shard and each.dim != last else Replicate() for each in x.placements]
    whole = [Replicate()] * len(placements)
    summed = [Partial() if type(each) is Shard else each for each in placements]

    def local(name: str, tensor: Any) -> torch.Tensor | None:
        if tensor is None:
            return None
        wanted, of_gradient = (placements, placements) if name == "x" or name in LIKE_X else (whole, summed)
        if [*tensor.placements] != wanted:  # else a partial gradient would be summed at once
            tensor = tensor.redistribute(mesh, wanted)
        return tensor.to_local(grad_placements=of_gradient)

    def wrap(result: torch.Tensor) -> torch.Tensor:
        strides = torch.empty(x.shape, device="meta").stride()
        return DTensor.from_local(result, mesh, placements, run_check=False, shape=x.shape, stride=strides)

    return Operands(*(local(*each) for each in operands._asdict().items())), wrap  # pyright: ignore[reportArgumentType]


def _of_jagged(operands: Operands) -> tuple[Operands, Wrap]:
    x: Any = operands.x
    if x.lengths() is not None:
        raise ValueError("a nested tensor must have no holes between its sequences")
    jagged = x._ragged_idx
    if jagged == x.dim() - 1:
        raise ValueError("the last dimension of a nested tensor, which is normalised, must not be the jagged one")

    def values(tensor: Any) -> Any:
        return tensor.values() if tensor is not None and tensor.is_nested else tensor

    def wrap(result: torch.Tensor) -> torch.Tensor:
        lengths = {"min_seqlen": x._maybe_min_seqlen, "max_seqlen": x._maybe_max_seqlen}
        return torch.nested.nested_tensor_from_jagged(result, x.offsets(), jagged_dim=jagged, **lengths)

    return Operands(*map(values, operands)), wrap
