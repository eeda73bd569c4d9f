"""The status and the text of an exception, for a row."""

from __future__ import annotations

import torch

from harness.records.schema import Status


def status_of(error: BaseException) -> Status:
    """`oom` where memory was short, else `crashed`."""
    return "oom" if is_out_of_memory(error) else "crashed"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was short, on the device or on the host."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def one_line(error: BaseException) -> str:
    """The kind of error and its message, on one line of bounded length."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400]
