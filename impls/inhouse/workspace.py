"""The memory through which the programs of a launch wait for each other: one piece a stream, never reset."""

from __future__ import annotations

import torch

STATE_BYTES = 64  # so that the barrier and the exchanged words share no cache line
_by_stream: dict[tuple[int | None, int], torch.Tensor] = {}


def workspace(device: torch.device, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The state of barrier.py (int32) and so many words (int64) for launches on the current stream; 0 when made.

    Launches on one stream follow each other, so they may share it. A graph may replay beside anything, so a captured
    launch has memory of its own, which every replay clears.
    """
    size = STATE_BYTES // 8 + words
    if torch.cuda.is_current_stream_capturing():
        return _parts(torch.zeros(size, dtype=torch.int64, device=device))
    key = (device.index, torch.cuda.current_stream(device).cuda_stream)
    memory = _by_stream.get(key)
    if memory is None or memory.numel() < size:
        memory = torch.zeros(size, dtype=torch.int64, device=device)
        _by_stream[key] = memory
    return _parts(memory)


def _parts(memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return memory[:2].view(torch.int32), memory[STATE_BYTES // 8 :]
