"""What a careless or cheating backward may not get away with."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations

import torch

from harness.cases import DeviceKind, Grads, Inputs
from harness.cases.guards import each_place_once, whole_buffer
from harness.verify.determinism import same_bits

NAMES = ("x", "weight", "bias", "dy", "mean", "rstd")
M_PERTURB = -6  # of mallopt: what malloc hands out is filled with the complement of this byte
ALMOST_NAN = 0x01  # its complement, 0xFE, is NaN in fp16, and -1.7e38 in bf16 and fp32; 0x00 would switch it off


@dataclass(frozen=True)
class Pristine:
    """Copies of the inputs as they were made, guards and gaps included, to compare with and to restore from."""

    buffers: dict[str, torch.Tensor]
    dy: torch.Tensor

    @classmethod
    def of(cls, inputs: Inputs) -> Pristine:
        """Copy the inputs of a case, the statistics among them."""
        buffers = {name: whole_buffer(t).clone() for name in NAMES if (t := getattr(inputs, name)) is not None}
        return cls(buffers, _like(buffers["dy"], inputs.dy))

    def changed(self, inputs: Inputs, in_place: bool) -> list[str]:
        """Names of the inputs that are no longer what they were; dy may change where that is declared."""
        return [
            name
            for name in self._touched(inputs)
            if not (in_place and name == "dy")
            and not same_bits(_like(self.buffers[name], t := getattr(inputs, name)), t)
        ]

    def overrun(self, inputs: Inputs) -> list[str]:
        """Names of the inputs beside which, outside of their own elements, something was written."""
        found: list[str] = []
        for name in self._touched(inputs):
            now = whole_buffer(getattr(inputs, name)).clone()
            placed: torch.Tensor = getattr(inputs, name)
            each_place_once(_like(now, placed)).copy_(each_place_once(_like(self.buffers[name], placed)))
            if not torch.equal(now, self.buffers[name]):
                found.append(name)
        return found

    def restore(self, inputs: Inputs) -> None:
        """Put every input back, unseen by autograd, which would refuse a backward whose inputs were written to."""
        for name, was in self.buffers.items():
            whole_buffer(getattr(inputs, name)).copy_(was)

    def _touched(self, inputs: Inputs) -> list[str]:
        return [name for name, was in self.buffers.items() if not torch.equal(whole_buffer(getattr(inputs, name)), was)]


def _like(buffer: torch.Tensor, placed: torch.Tensor) -> torch.Tensor:
    """The elements in a copy of its buffer that an input has in the original."""
    return buffer.view(placed.dtype).as_strided(placed.shape, placed.stride(), placed.storage_offset())


def overlaps(inputs: Inputs, grads: Grads, in_place: bool) -> str | None:
    """Say which gradient shares memory with an input or another gradient, or None; a declared dx may with dy."""
    named = {name: t for name in ("dx", "dweight", "dbias") if (t := getattr(grads, name)) is not None}
    for (first, a), (other, b) in combinations(named.items(), 2):
        if _share(a, b):
            return f"{first} and {other} lie in the same memory"
    for name, tensor in named.items():
        for given in NAMES:
            of = getattr(inputs, given)
            if of is not None and _share(tensor, of) and not (in_place and (name, given) == ("dx", "dy")):
                return f"{name} lies in the memory of the input {given}"
    return None


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not (a.numel() and b.numel()):
        return False
    (a_start, a_end), (b_start, b_end) = _extent(a), _extent(b)
    return a_start < b_end and b_start < a_end


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


@contextmanager
def poisoned_heap(device: DeviceKind = "cpu") -> Generator[None]:
    """Fill what malloc hands out with something that is no gradient, where gradients lie in its memory: on a CPU.

    Only glibc can.
    """
    perturb = device == "cpu" and _mallopt(ALMOST_NAN)
    try:
        yield
    finally:
        if perturb:
            _mallopt(0)


def _mallopt(byte: int) -> bool:
    if sys.platform != "linux":
        return False
    with suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).mallopt(M_PERTURB, byte))
    return False


def make_ready(inputs: Inputs, pristine: Pristine) -> None:
    """What precedes every call that is judged: the inputs as they were, and NaN where outputs and scratch will lie."""
    pristine.restore(inputs)
    poison(inputs)


def poison(inputs: Inputs, blocks: int = 3) -> None:
    """Fill the memory that outputs and scratch will reuse with NaN, so that what a backward leaves unwritten shows.

    Works through the allocator's cache: blocks of the sizes of the gradients are taken, filled and given back.
    """
    case, device = inputs.case, inputs.x.device
    taken = [torch.empty(case.rows, case.cols, dtype=inputs.x.dtype, device=device) for _ in range(blocks)]
    for dtype in (inputs.dy.dtype if inputs.weight is None else inputs.weight.dtype, torch.float32):
        taken += [torch.empty(case.cols, dtype=dtype, device=device) for _ in range(2 * blocks)]
    for tensor in taken:
        tensor.fill_(torch.nan)
