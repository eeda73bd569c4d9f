"""The bytes that a backward has to move, and an elementwise kernel that moves as many."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING

from harness.cases.case import NormCase
from harness.cases.tensors import CaseTensor, TensorKind, tensors_of

if TYPE_CHECKING:
    import torch

    from harness.cases.inputs import Inputs

ADD_NAME = "same-traffic add"  # what the kernel of `same_traffic_add` is called in results and reports


def moved_bytes(case: NormCase) -> int:
    """Bytes that any backward of a case must move: each input read once, each gradient written once."""
    return sum(tensor.size_bytes(case) for tensor in tensors_of(case) if tensor.traffic)


@lru_cache(maxsize=1000)
def shortest_possible_us(case: NormCase, datasheet_gbps: float) -> float:
    """The microseconds that reading x and dy once takes at the datasheet's rate: no cold backward is faster."""
    read = sum(tensor.size_bytes(case) for tensor in tensors_of(case) if tensor.name in ("x", "dy"))
    return read / datasheet_gbps / 1e3


def same_traffic_add(inputs: Inputs) -> Callable[[], object]:
    """An elementwise kernel that reads and writes as many activations as a case's backward; vectors are left out.

    For two in and one out, as in a plain case, it is an add. Heads of a projection are copied out of it, untimed: as
    many bytes are read, and torch has no fast add of a slice.
    """
    import torch

    case = inputs.case
    read = [inputs.tensors()[tensor.name] for tensor in _activations(case, "input")]
    if case.heads:
        read = [tensor.contiguous() for tensor in read]
    written = len(_activations(case, "gradient"))
    if (len(read), written) == (2, 1):
        return lambda: torch.add(*read)
    if (len(read), written) == (3, 1):
        return lambda: torch.addcmul(*read)
    # A code object of its own: the compiler would make the shapes of the next case dynamic, and give up after a few.
    own = FunctionType(_sums.__code__.replace(), _sums.__globals__)
    compiled = torch.compile(own, dynamic=False, fullgraph=True)
    return lambda: compiled(read, written)


def _sums(read: list[torch.Tensor], written: int) -> list[torch.Tensor]:
    """Several different sums of the same tensors, which a compiler forms in one kernel."""
    total = read[0]
    for tensor in read[1:]:
        total = total + tensor
    return [total + number for number in range(written)]


def _activations(case: NormCase, kind: TensorKind) -> list[CaseTensor]:
    return [tensor for tensor in tensors_of(case, kind) if tensor.extent == "activation"]
