"""Memory beside CUDA graphs: zeroed memory for the launches that one captures, and memory that is in no graph's pool.

A graph may replay beside anything, so no stream and no other graph may have the memory by which its launches wait for
each other. Memory that the graph itself clears costs it a node in front of the kernel. So memory is cleared before:
eager calls keep a reserve (`prepare`), and a capture takes a piece of it (`piece`). Launches that one graph captures
from one stream follow each other, at every replay, and share a piece. CUDA says when a graph is gone; its piece then
serves another, as it is: nothing in it is ever reset.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

import torch

RESERVE_WORDS = 1 << 17  # of 8 bytes: 1 MiB
FEWEST_PIECES = 16  # that a reserve has when it is made
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
LINE_WORDS = 16  # no two pieces share a line of 128 bytes


class Capture(NamedTuple):
    """What a stream captures: its number, which no other capture of the process has, and CUDA's handle of its graph."""

    number: int
    graph: int


@dataclass
class CaptureMemory:
    """Memory of the launches that one capture took from one stream; the semaphore is posted when its graph is gone."""

    device: torch.device
    stream: int
    capture: int
    memory: torch.Tensor
    gone: int | None


_reserves: dict[torch.device, torch.Tensor] = {}  # what is left of each
_pieces: list[CaptureMemory] = []
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
    """Give back what no capture has taken, and what those of graphs that are gone had; return the bytes.

    A later capture clears memory by itself, until an eager call has prepared some.
    """
    with _lock:
        free = [each for each in _pieces if is_posted(each.gone)]
        released = sum(memory.nbytes for memory in (*_reserves.values(), *(each.memory for each in free)))
        _reserves.clear()
        _pieces[:] = [each for each in _pieces if each not in free]
    return {"graphs": released}


def piece(device: torch.device, size: int) -> torch.Tensor:
    """At least so many words for a launch that the current stream captures; 0 when they are first given out.

    Where nothing was prepared, the graph clears them itself.
    """
    stream = torch.cuda.current_stream(device).cuda_stream
    capture = capture_of(stream)
    if capture is not None:
        with _lock:
            for each in _pieces:
                known = (each.device, each.stream, each.capture) == (device, stream, capture.number)
                if known and each.memory.numel() >= size:
                    return each.memory
            free = _take(device, size)
            if free is not None:
                memory, semaphore = free
                _pieces.append(
                    CaptureMemory(device, stream, capture.number, memory, post_when_gone(capture.graph, semaphore))
                )
                return memory
        for prepare_again in when_short:
            prepare_again()
    return torch.zeros(size, dtype=torch.int64, device=device)


def _take(device: torch.device, size: int) -> tuple[torch.Tensor, int | None] | None:
    """The piece of a graph that is gone, with the semaphore that said so, or else a new one of the reserve."""
    for number, each in enumerate(_pieces):
        if each.device == device and each.memory.numel() >= size and is_posted(each.gone):
            del _pieces[number]
            return each.memory, each.gone
    reserve = _reserves.get(device)
    if reserve is None or reserve.numel() < _lines(size):
        return None
    _reserves[device] = reserve[_lines(size) :]
    return reserve[: _lines(size)], None


def _lines(size: int) -> int:
    return -(-size // LINE_WORDS) * LINE_WORDS


# ------------------------------------------------------------------------------------------------ what CUDA says


@lru_cache
def driver() -> tuple[ctypes.CDLL, ctypes.CDLL] | None:
    """NVIDIA's driver and the C library; None where they lack what is called here."""
    try:
        cuda, c = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
        calls = cuda.cuStreamGetCaptureInfo_v2, cuda.cuUserObjectCreate, cuda.cuGraphRetainUserObject
        calls = *calls, cuda.cuStreamGetId, cuda.cuThreadExchangeStreamCaptureMode
        c.calloc.restype = ctypes.c_void_p
        return (cuda, c) if all((*calls, c.sem_init, c.sem_post, c.sem_trywait, c.sem_getvalue)) else None
    except (OSError, AttributeError):
        return None


def capture_of(stream: int) -> Capture | None:
    """What a stream captures, if the driver says so."""
    libraries = driver()
    if libraries is None:
        return None
    status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    outputs = ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph)
    failed = libraries[0].cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *outputs, None, None)
    return None if failed or not graph.value else Capture(number.value, graph.value)


def number_of(stream: int) -> int | None:
    """The number of a stream, which no other one of the process ever has; None where the driver does not say."""
    libraries, number = driver(), ctypes.c_uint64()
    failed = libraries is None or libraries[0].cuStreamGetId(ctypes.c_void_p(stream), ctypes.byref(number))
    return None if failed else number.value


@contextmanager
def beside_captures() -> Generator[None]:
    """Let this thread allocate, wait and load kernels while others capture, whose captures that would break else."""
    libraries, mode = driver(), ctypes.c_int(RELAXED)
    exchange = None if libraries is None else libraries[0].cuThreadExchangeStreamCaptureMode
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        exchange = None
    is_changed = exchange is not None and not exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        if exchange is not None and is_changed:
            exchange(ctypes.byref(mode))


def post_when_gone(graph: int, posted: int | None = None) -> int | None:
    """A semaphore that is posted when a graph and all that was made of it are gone; None where CUDA refuses that.

    The C library's own function posts it, because CUDA calls it from a thread of its own, maybe after Python has ended.
    A semaphore that was `posted` serves again. None is ever given back: who posts it may still be about to return.
    """
    libraries = driver()
    assert libraries is not None
    cuda, c = libraries
    semaphore, user_object = posted, ctypes.c_void_p()
    if semaphore is None:
        semaphore = c.calloc(1, 64)
        c.sem_init(ctypes.c_void_p(semaphore), 0, 0)
    else:
        c.sem_trywait(ctypes.c_void_p(semaphore))
    post = ctypes.cast(c.sem_post, ctypes.c_void_p)
    # One reference; 1 says that the destructor is not waited for, which CUDA asks for, and 1 gives it to the graph.
    failed = cuda.cuUserObjectCreate(ctypes.byref(user_object), ctypes.c_void_p(semaphore), post, 1, 1)
    failed = failed or cuda.cuGraphRetainUserObject(ctypes.c_void_p(graph), user_object, 1, 1)
    return None if failed else semaphore


def is_posted(semaphore: int | None) -> bool:
    """Whether a semaphore of `post_when_gone` was posted."""
    libraries, value = driver(), ctypes.c_int()
    if semaphore is None or libraries is None:
        return False
    libraries[1].sem_getvalue(ctypes.c_void_p(semaphore), ctypes.byref(value))
    return value.value > 0
