"""Checks of memory: a backward must not change its inputs or share memory, and must write its outputs in full."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations, product

import torch

from harness.cases import DeviceKind, Grads, Inputs, torch_dtype
from harness.cases.guards import each_place_once, whole_buffer
from harness.cases.tensors import OUTPUT_GRADIENTS, gradients_of
from harness.records.reasons import Reason
from harness.verify.determinism import same_bits
from harness.verify.reference import Piece

M_PERTURB = -6  # of mallopt: what malloc hands out is filled with the complement of this byte
ALMOST_NAN = 0x01  # its complement, 0xFE, is NaN in fp16, and -1.7e38 in bf16 and fp32; 0x00 would switch it off


@dataclass(frozen=True)
class Pristine:
    """Copies of the inputs as they were made, guards and gaps included, to compare with and to restore from.

    `exact` is their reference, where it is kept for several implementations.
    """

    buffers: dict[str, torch.Tensor]
    exact: tuple[Piece, ...] = ()

    @classmethod
    def of(cls, inputs: Inputs) -> Pristine:
        """Copy the inputs of a case, the statistics among them."""
        return cls({name: whole_buffer(tensor).clone() for name, tensor in inputs.tensors().items()})

    def output_gradients(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """The original dy, and dy1 where there is one."""
        tensors = inputs.tensors()
        return {name: _like(self.buffers[name], tensors[name]) for name in OUTPUT_GRADIENTS if name in tensors}

    def original(self, inputs: Inputs) -> Inputs:
        """The inputs with copies of the original dy and dy1, which a backward may have overwritten."""
        return inputs.with_tensors(self.output_gradients(inputs))

    def changed(self, inputs: Inputs, in_place: bool) -> list[str]:
        """Names of the inputs that have changed; dy may change if the backward works `in_place`."""
        return [
            name
            for name, tensor in self.touched(inputs).items()
            if not (in_place and name in OUTPUT_GRADIENTS) and not same_bits(_like(self.buffers[name], tensor), tensor)
        ]

    def overrun(self, inputs: Inputs) -> list[str]:
        """Names of the inputs whose guards or gaps were written to."""
        names: list[str] = []
        for name, tensor in self.touched(inputs).items():
            now = whole_buffer(tensor).clone()
            each_place_once(_like(now, tensor)).copy_(each_place_once(_like(self.buffers[name], tensor)))
            if not torch.equal(now, self.buffers[name]):
                names.append(name)
        return names

    def restore(self, inputs: Inputs) -> None:
        """Restore every input, without autograd noticing, which would refuse a backward after that."""
        for name, tensor in inputs.tensors().items():
            whole_buffer(tensor).copy_(self.buffers[name])

    def touched(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """The inputs of which anything in memory has changed, guards and gaps included."""
        tensors = inputs.tensors().items()
        return {name: tensor for name, tensor in tensors if not torch.equal(whole_buffer(tensor), self.buffers[name])}


def _like(buffer: torch.Tensor, placed: torch.Tensor) -> torch.Tensor:
    """The elements in a copy of its buffer that an input has in the original."""
    return buffer.view(placed.dtype).as_strided(placed.shape, placed.stride(), placed.storage_offset())


def harm(pristine: Pristine, inputs: Inputs, answer: object, in_place: bool) -> Reason | None:
    """The harm that a backward that returned `answer` did to memory that is not its own, or None.

    dy may change where `in_place` is declared.
    """
    if pristine.touched(inputs):  # most often nothing is, and every repeat asks
        if changed := pristine.changed(inputs, in_place):
            return Reason("changed_dy" if changed == ["dy"] else "changed_input", {"tensors": changed})
        if overrun := pristine.overrun(inputs):
            return Reason("wrote_outside_input", {"tensors": overrun})
    return overlaps(inputs, answer, in_place) if isinstance(answer, Grads) else None


def overlaps(inputs: Inputs, grads: Grads, in_place: bool) -> Reason | None:
    """The gradient that shares memory with an input or another gradient, or None; an in-place dx may share dy's."""
    gradients = grads.tensors()
    for (first, a), (other, b) in combinations(gradients.items(), 2):
        if _share(a, b):
            return Reason("same_memory", {"tensors": [first, other]})
    for (name, gradient), (given, tensor) in product(gradients.items(), inputs.tensors().items()):
        if _share(gradient, tensor) and not (in_place and (name, given) == ("dx", "dy")):
            return Reason("in_memory_of_input", {"tensors": [name, given]})
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
    """Prepare for a call that is judged: restore the inputs, and fill memory for outputs and scratch with NaN."""
    pristine.restore(inputs)
    poison(inputs)


def poison(inputs: Inputs, copies: int = 3) -> None:
    """Fill the memory that outputs and scratch will reuse with NaN, so that what a backward leaves unwritten shows.

    Works through the allocator's cache: blocks of the sizes of the gradients, and vectors, are taken, filled and given
    back.
    """
    case, device = inputs.case, inputs.x.device
    blocks = [(tensor.shape(case), torch_dtype(tensor.dtype_in(case))) for tensor in gradients_of(case)]
    vectors = [((case.cols,), dtype) for dtype in (torch_dtype(case.weight_dtype), torch.float32)]
    taken = [torch.empty(*shape, dtype=dtype, device=device) for shape, dtype in copies * blocks + 2 * copies * vectors]
    for tensor in taken:
        tensor.fill_(torch.nan)
