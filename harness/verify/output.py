"""Restores standard output and error, as Python streams and as file descriptors, after something closed them."""

from __future__ import annotations

import os
import sys
from typing import Any

State = tuple[Any, ...]


def read() -> State:
    """The two streams, whether each is closed, and which files they lead to."""
    streams = [(stream, stream is None or stream.closed) for stream in (sys.stdout, sys.stderr)]
    return (*streams, *(_opened(descriptor) for descriptor in (1, 2)))


def put(was: State) -> None:
    """Both lead to one file in a worker: where one of the two is left, the other can be mended."""
    for descriptor, file in ((1, was[2]), (2, was[3])):
        if _opened(descriptor) != file == _opened(3 - descriptor):
            os.dup2(3 - descriptor, descriptor)
    for name, descriptor, (stream, was_closed) in (("stdout", 1, was[0]), ("stderr", 2, was[1])):
        closed_since = stream is not None and stream.closed and not was_closed
        setattr(sys, name, open(descriptor, "w", closefd=False) if closed_since else stream)  # noqa: SIM115


def _opened(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
