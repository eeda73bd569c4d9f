"""Memory beside CUDA graphs: zeroed memory for the launches that one captures, and memory that is in no graph's pool.

A graph may replay beside anything, so no stream and no other graph may have the memory by which its launches wait for
each other. Memory that the graph itself clears costs it a node in front of the kernel. So memory is cleared before:
eager calls keep a reserve (`prepare`), and a capture takes a piece of it (`piece`). Launches that one graph captures
from one stream follow each other, at every replay, and share a piece, which stays theirs for good. A
user object, by which CUDA would say that the graph is gone, would cost each replay a microsecond or two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock

import torch

RESERVE_WORDS = 1 << 17  # of 8 bytes: 1 MiB
FEWEST_PIECES = 16  # that a reserve has when it is made
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
CAPTURE_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
LINE_WORDS = 16  # no two pieces share a line of 128 bytes


_reserves: dict[torch.device, torch.Tensor] = {}  # what is left of each
# By device, stream and number of a capture, which no other one of the process has.
_pieces: dict[tuple[torch.device, int, int], list[torch.Tensor]] = {}
_lock = Lock()
when_short: list[Callable[[], None]] = []  # called where a capture found too little, so that eager calls prepare more


def outside_of_pools(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Make a tensor that lasts, in a thread of its own.

    What this thread allocates may go to the pool of a graph (torch.compile's, as it warms up), where nothing may stay.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(beside_captures()(make)).result()


def prepare(device: torch.device, size: int) -> None:
    """Have zeroed memory for captures of launches that need so many words; nothing is captured now."""
    if device.type != "cuda" or driver() is None:
        return

    def make() -> torch.Tensor:
        stream = torch.cuda.Stream(device)  # idle, so that waiting for it takes no time
        with torch.cuda.stream(stream):
            memory = torch.zeros(max(RESERVE_WORDS, FEWEST_PIECES * _lines(size)), dtype=torch.int64, device=device)
        stream.synchronize()  # a graph may replay on any stream
        return memory

    with _lock:
        if device not in _reserves or _reserves[device].numel() < _lines(size):
            _reserves[device] = outside_of_pools(make)


def release() -> dict[str, int]:
    """Give back what no capture has taken; return the bytes.

    A later capture clears memory by itself, until an eager call has prepared some.
    """
    with _lock:
        released = sum(memory.nbytes for memory in _reserves.values())
        _reserves.clear()
    return {"graphs": released}


def piece(device: torch.device, size: int) -> torch.Tensor:
    """At least so many words for a launch that the current stream captures; 0 when they are first given out.

    Where nothing was prepared, the graph clears them itself.
    """
    stream = torch.cuda.current_stream(device).cuda_stream
    capture = capture_of(stream)
    if capture is not None:
        with _lock:
            given = _pieces.setdefault((device, stream, capture), [])
            for memory in given:
                if memory.numel() >= size:
                    return memory
            reserve = _reserves.get(device)
            if reserve is not None and reserve.numel() >= _lines(size):
                _reserves[device] = reserve[_lines(size) :]
                given.append(reserve[: _lines(size)])
                return given[-1]
        for prepare_again in when_short:
            prepare_again()
    return torch.zeros(size, dtype=torch.int64, device=device)


def _lines(size: int) -> int:
    return -(-size // LINE_WORDS) * LINE_WORDS


# ------------------------------------------------------------------------------------------------ what CUDA says


@lru_cache
def driver() -> ctypes.CDLL | None:
    """NVIDIA's driver; None where it lacks what is called here."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        calls = cuda.cuStreamGetCaptureInfo_v2, cuda.cuStreamGetId, cuda.cuThreadExchangeStreamCaptureMode
        return cuda if all(calls) else None
    except (OSError, AttributeError):
        return None


def capture_of(stream: int) -> int | None:
    """The number of what a stream captures, if the driver says so."""
    cuda = driver()
    if cuda is None:
        return None
    status, number = ctypes.c_int(), ctypes.c_uint64()
    outputs = ctypes.byref(status), ctypes.byref(number), None
    failed = cuda.cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *outputs, None, None)
    return None if failed or status.value != CAPTURE_ACTIVE else number.value


def number_of(stream: int) -> int | None:
    """The number of a stream, which no other one of the process ever has; None where the driver does not say."""
    cuda, number = driver(), ctypes.c_uint64()
    failed = cuda is None or cuda.cuStreamGetId(ctypes.c_void_p(stream), ctypes.byref(number))
    return None if failed else number.value


@contextmanager
def beside_captures() -> Generator[None]:
    """Let this thread allocate, wait and load kernels while others capture, whose captures that would break else."""
    cuda, mode = driver(), ctypes.c_int(RELAXED)
    exchange = None if cuda is None else cuda.cuThreadExchangeStreamCaptureMode
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        exchange = None
    is_changed = exchange is not None and not exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        if exchange is not None and is_changed:
            exchange(ctypes.byref(mode))
