"""Where inputs and answers lie: shared memory of a CPU, or allocations of a GPU that processes open by CUDA's IPC.

Importable without torch; only what makes tensors imports it.
"""

from __future__ import annotations

import base64
import ctypes
import math
import mmap
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.cases.case import ITEM_BYTES, NormCase, Stored, torch_dtype
from harness.cases.tensors import TensorKind, tensors_of

if TYPE_CHECKING:
    import torch

PAGE = 4096
IPC_HANDLE_BYTES = 64
GATE_BYTES = PAGE  # at the end of a runner's block: a word that opens its queue, then one that says the queue is done
WORD_BYTES = 4
UNTIL_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ
LAZY_PEER_ACCESS = 1  # the only flag that cuIpcOpenMemHandle takes


@dataclass(frozen=True)
class Span:
    """One tensor in a block of memory."""

    name: str
    offset: int
    size: int
    shape: tuple[int, ...]
    dtype: Stored

    def bytes_in(self, *, wide: bool) -> int:
        """Its bytes, or if `wide` those of the same numbers in fp32."""
        return math.prod(self.shape) * ITEM_BYTES["fp32" if wide else self.dtype]


def layout(case: NormCase, calls: int, *kinds: TensorKind) -> tuple[list[list[Span]], int]:
    """The tensors of these kinds for each call, each on a page of its own, and the bytes in all.

    A gradient has room for fp32, which an implementation may return.
    """
    at, all_spans = 0, list[list[Span]]()
    for _ in range(calls):
        spans: list[Span] = []
        for tensor in tensors_of(case, *kinds):
            shape, dtype = tensor.shape(case), tensor.dtype_in(case)
            spans.append(Span(tensor.name, at, math.prod(shape) * ITEM_BYTES[dtype], shape, dtype))
            at += -(-spans[-1].bytes_in(wide=tensor.kind == "gradient") // PAGE) * PAGE
        all_spans.append(spans)
    return all_spans, at


def views(block: torch.Tensor, spans: list[Span]) -> dict[str, torch.Tensor]:
    """The tensors by name, in a block of bytes."""
    return {
        span.name: block[span.offset : span.offset + span.size].view(torch_dtype(span.dtype)).view(span.shape)
        for span in spans
    }


def host_block(descriptor: int, size: int) -> torch.Tensor:
    """The shared memory behind a descriptor, as bytes."""
    import torch

    return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    if code := getattr(_driver(), name)(*arguments):
        raise RuntimeError(f"{name} failed with CUDA error {code}")


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * IPC_HANDLE_BYTES),)


def exported(address: int) -> tuple[str, int]:
    """The handle of the allocation that an address of this GPU lies in, and how far in."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
    return _handle_of(base.value), address - base.value


@cache
def _handle_of(base: int) -> str:
    handle = _Handle()
    _call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(base))
    return base64.b64encode(bytes(handle)).decode("ascii")


_IMPORTED: dict[tuple[int, str], tuple[int, int]] = {}


def _imported(runner: int, handle: str) -> tuple[int, int]:
    """The address at which a runner's allocation is mapped here, and its bytes."""
    if (runner, handle) not in _IMPORTED:
        raw = base64.b64decode(handle, validate=True)
        if len(raw) != IPC_HANDLE_BYTES:
            raise ValueError("no handle of CUDA IPC")
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        opened = _Handle.from_buffer_copy(raw)
        _call("cuIpcOpenMemHandle_v2", ctypes.byref(base), opened, ctypes.c_uint(LAZY_PEER_ACCESS))
        _call("cuMemGetAddressRange_v2", None, ctypes.byref(size), base)
        _IMPORTED[runner, handle] = base.value, size.value
    return _IMPORTED[runner, handle]


def forget(runner: int) -> None:
    """Unmap what a runner that has ended allocated, so that its memory is free again."""
    for key in [key for key in _IMPORTED if key[0] == runner]:
        base, _ = _IMPORTED.pop(key)
        _call("cuIpcCloseMemHandle", ctypes.c_uint64(base))


class _Bytes:
    """Device memory at an address, as torch takes it from other libraries."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 2}


def device_block(runner: int, handle: str, offset: int, size: int) -> torch.Tensor:
    """So many bytes of a runner's allocation; raises ValueError where it has fewer."""
    import torch

    base, whole = _imported(runner, handle)
    if offset + size > whole:
        raise ValueError("outside of the allocation")
    return torch.as_tensor(_Bytes(base + offset, size), device="cuda")


def wait_for(address: int, word: int) -> None:
    """Let the current stream wait until 32 bits of a GPU's memory are so; raises where the driver cannot."""
    _on_stream("cuStreamWaitValue32_v2", address, word, UNTIL_EQUAL)


def write(address: int, word: int) -> None:
    """Let the current stream write 32 bits, after all that was queued before."""
    _on_stream("cuStreamWriteValue32_v2", address, word, 0)


def _on_stream(name: str, address: int, word: int, flags: int) -> None:
    import torch

    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    _call(name, stream, ctypes.c_uint64(address), ctypes.c_uint32(word), ctypes.c_uint(flags))


def reset_persisting_lines() -> None:
    """Make all lines of the L2 cache ordinary ones again, whoever asked for them to stay."""
    _call("cuCtxResetPersistingL2Cache")
