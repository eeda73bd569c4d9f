"""Canaries around the memory that a backward allocates itself: outputs and scratch.

The backward allocates from one block that was filled with a known byte. Afterwards every byte of the block that no
request covers must be as it was. Between two buffers lies the padding of the allocator, which rounds a request up to
512 bytes: where a buffer is a whole multiple, nothing lies between it and the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from harness.cases import Grads
from harness.cases.guards import GUARD
from harness.records.reasons import Reason

SLACK_BYTES = 16 << 20
_sizes: list[int] = []  # of the blocks that the pool has


def overrun(backward: Callable[[], Grads], peak_bytes: int) -> Reason | None:
    """Run a backward once on a GPU, and say how far beyond a buffer of its own it wrote, or None.

    `peak_bytes` is what it takes at most, outputs among them. What it allocates in another thread, as autograd does, is
    not seen.
    """
    memory: Any = torch.cuda.memory
    size = max(2 * peak_bytes + SLACK_BYTES, *_sizes, 0)  # room for holes between buffers
    with torch.cuda.use_mem_pool(_pool()):
        # Smaller blocks of earlier calls stay taken, as the allocator would take the smallest that fits.
        smaller = [torch.empty(other, dtype=torch.uint8, device="cuda") for other in _sizes if other < size]
        block = torch.full((size,), GUARD, dtype=torch.uint8, device="cuda")
        if size not in _sizes:
            _sizes.append(size)
        start = block.data_ptr()
        del block
        memory._record_memory_history("all", context=None)
        try:
            grads = backward()
            torch.cuda.synchronize()
            traces = memory._snapshot()["device_traces"]
        finally:
            memory._record_memory_history(None)
    requests = [
        (entry["addr"] - start, entry["size"])
        for trace in traces
        for entry in trace
        if entry["action"] == "alloc" and start <= entry["addr"] < start + size
    ]
    written_outside = outside(_bytes_at(start, size), requests)
    del grads, smaller
    return written_outside


def outside(memory: torch.Tensor, requests: Sequence[tuple[int, int]]) -> Reason | None:
    """Say what was written in filled memory outside of the requests, each an offset and a length in bytes, or None."""
    untouched = memory == GUARD
    for offset, length in requests:
        untouched[offset : offset + length] = True
    where = torch.nonzero(~untouched)
    if not len(where):
        return None
    count, place = len(where), int(where[0])
    ends = [place - (offset + length) for offset, length in requests if offset + length <= place]
    starts = [offset - place for offset, _ in requests if offset > place]
    if ends and (not starts or min(ends) < min(starts)):
        return Reason("wrote_behind_buffer", {"bytes": count, "distance": min(ends)})
    if starts:
        return Reason("wrote_before_buffer", {"bytes": count, "distance": min(starts)})
    return Reason("wrote_far_from_buffers", {"bytes": count})


@cache
def _pool() -> torch.cuda.MemPool:
    """One for the whole process: torch 2.11 aborts where a second one is destroyed."""
    return torch.cuda.MemPool()


def _bytes_at(address: int, size: int) -> torch.Tensor:
    """The memory at an address as a tensor; it stays the allocator's."""
    device = torch.device("cuda", torch.cuda.current_device())
    private: Any = torch._C  # pyright: ignore[reportPrivateUsage]
    storage = private._construct_storage_from_data_pointer(address, device, size)
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
