"""Whether a backward gives the same bits again."""

from __future__ import annotations

import torch

from harness.cases import Grads

CHUNK = 1 << 24
GOLDEN = 0x1E3779B97F4A7C15  # an odd number without a pattern: the golden ratio's digits
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bits(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bit patterns: NaN equals the same NaN, 0 differs from -0."""
    return first.dtype == other.dtype and torch.equal(_bits(first), _bits(other))


def differing(first: Grads, other: Grads) -> list[str]:
    """Names of the gradients whose bits differ between two runs."""
    others = other.tensors()
    return [name for name, a in first.tensors().items() if name not in others or not same_bits(a, others[name])]


def cloned(grads: Grads) -> Grads:
    """A copy, which later runs do not overwrite."""
    return grads.with_tensors({name: tensor.clone() for name, tensor in grads.tensors().items()})


def fingerprint(grads: Grads) -> str:
    """A hash of all bits and their positions, the same in every process for the same bits.

    Sums of integers, which wrap and do not depend on their order, so that a device may form them in any.
    """
    checksums = (_checksum(tensor) for tensor in grads.tensors().values())
    return "-".join(f"{checksum & (1 << 64) - 1:016x}" for checksum in checksums)


def _checksum(tensor: torch.Tensor) -> int:
    bits, total = _bits(tensor).flatten(), 0
    for start in range(0, bits.numel(), CHUNK):
        part = bits[start : start + CHUNK].long()
        places = torch.arange(start, start + part.numel(), device=part.device)
        total += int(((part + 1) * (places * GOLDEN | 1)).sum())
    return total


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()])
