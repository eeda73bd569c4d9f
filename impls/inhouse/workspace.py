"""The memory of launches that lasts: one piece a stream, by which programs wait for each other, never reset.

A stream is told by its handle and by the number that CUDA gives it, because a handle comes again when its stream is
destroyed.
"""

from __future__ import annotations

import torch

from . import graph_memory

Owner = tuple[int | None, int, int | None]  # the device, the handle of the stream, and its number

FIXED_WORDS = 48  # those of arrivals.py: three lines of 128 bytes
MARK = 40  # the one of checks.py, among those that arrivals.py leaves
PER_THREAD = 2  # a handle that is another stream in every thread
grown: list[Owner] = []  # streams whose memory was replaced by more; who keeps launches clears it
_by_stream: dict[Owner, torch.Tensor] = {}
_scratch_by_stream: dict[Owner, torch.Tensor] = {}


def workspace(device: torch.device, words: int) -> torch.Tensor:
    """So many words (int64) for launches on the current stream; 0 when made.

    Launches on one stream follow each other, so they may share it. A graph may replay beside anything, so captured
    launches have memory of their own (graph_memory.py).
    """
    return _memory(device, FIXED_WORDS + words)[FIXED_WORDS:]


def arrival_words(device: torch.device) -> torch.Tensor:
    """The words of arrivals.py (int64) for launches on the current stream; 0 when made."""
    return _memory(device, FIXED_WORDS)[:FIXED_WORDS]


def mark(device: torch.device) -> torch.Tensor:
    """The word of checks.py for launches on the current stream; 0 when made."""
    return _memory(device, FIXED_WORDS)[MARK : MARK + 1]


def release() -> dict[str, int]:
    """Give the memory of all streams back to torch, which orders its next use behind this one; return bytes by kind."""
    kinds = {"words": _by_stream, "partials": _scratch_by_stream}
    released = {kind: sum(memory.nbytes for memory in memories.values()) for kind, memories in kinds.items()}
    for memories in kinds.values():
        memories.clear()
    return released


def _memory(device: torch.device, size: int) -> torch.Tensor:
    if torch.cuda.is_current_stream_capturing():
        return graph_memory.piece(device, size)
    graph_memory.prepare(device, size)
    memory = _by_stream.get(owner(device))
    if memory is None or memory.numel() < size:
        memory = _replaced(_by_stream, device, size, torch.int64)
    return memory


def of_stream(device: torch.device, scratch_bytes: int) -> list[torch.Tensor]:
    """The memory of the current stream: what `workspace` gave out, if it has, and so many bytes of any content."""
    key = owner(device)
    scratch = _scratch_by_stream.get(key)
    if scratch is None or scratch.numel() < scratch_bytes:
        scratch = _replaced(_scratch_by_stream, device, scratch_bytes, torch.uint8)
    return [_by_stream[key], scratch] if key in _by_stream else [scratch]


def owner(device: torch.device) -> Owner:
    """The current stream of a device; raises ValueError for a handle that stands for several."""
    handle = torch.cuda.current_stream(device).cuda_stream
    if handle == PER_THREAD:
        raise ValueError(
            "the current stream is cudaStreamPerThread, one handle for a stream of each thread, which torch's allocator"
            " does not tell apart: use torch.cuda.Stream()"
        )
    return device.index, handle, graph_memory.number_of(handle)


def _replaced(memories: dict[Owner, torch.Tensor], device: torch.device, size: int, dtype: torch.dtype) -> torch.Tensor:
    """New memory for the current stream, cleared on it, so that what was launched before may still use the old."""
    key = owner(device)
    stream = torch.cuda.current_stream(device)

    def make() -> torch.Tensor:
        with torch.cuda.stream(stream):
            return torch.zeros(size, dtype=dtype, device=device)

    if key in memories:
        grown.append(key)
    memories[key] = graph_memory.outside_of_pools(make)
    return memories[key]
