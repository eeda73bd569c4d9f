"""The status and the reason that an exception gives a row."""

from __future__ import annotations

import torch

from harness.records.schema import Status


def status_of(error: BaseException) -> Status:
    """`oom` where memory was short, else `crashed`."""
    return "oom" if is_out_of_memory(error) else "crashed"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was short, on the device or on the host."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
