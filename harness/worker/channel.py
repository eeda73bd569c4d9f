"""Messages between the parent and a child that runs anybody's code, as lines of JSON.

Such code can write to its end too. A pickle from there could run code in the parent; a line that is no message ends the
child.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import cache
from multiprocessing.connection import Connection, wait
from socket import socket
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

M = TypeVar("M")
LARGEST_BYTES = 64 << 20  # a row of hours of samples has a few MiB
CHUNK_BYTES = 1 << 16


class BadMessageError(Exception):
    """What came is no message; nothing more can be read."""


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class Channel(Generic[M]):
    """One end of a duplex pipe or a socket, at which the `kinds` arrive: dataclasses, or models of pydantic."""

    def __init__(self, end: Connection | socket, kinds: Iterable[type[M]], largest_bytes: int = LARGEST_BYTES) -> None:
        self._end = end
        self._largest_bytes = largest_bytes
        os.set_inheritable(end.fileno(), False)  # a program that a worker starts would hold it open
        self._kinds = {kind.__name__.encode(): kind for kind in kinds}
        self._came = bytearray()
        self.close = end.close

    def send(self, message: object) -> None:
        """Send a message; raises OSError where the other end is closed."""
        kind = type(message)
        left = memoryview(kind.__name__.encode() + b" " + _adapter(kind).dump_json(message) + b"\n")
        while left:
            left = left[os.write(self._end.fileno(), left) :]

    def receive(self, timeout_s: float | None) -> M | None:
        """The next message, or None where none is complete in time (None: waits for ever).

        Raises EOFError or OSError at the end of the stream, and BadMessageError.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        searched = 0
        while (end := self._came.find(b"\n", searched)) < 0:
            searched = len(self._came)
            if searched > self._largest_bytes:
                raise BadMessageError(f"one of more than {self._largest_bytes} bytes")
            if not wait([self._end], None if until_s is None else max(0.0, until_s - time.monotonic())):
                return None
            try:
                chunk = os.read(self._end.fileno(), CHUNK_BYTES)
            except ConnectionError:  # a socket whose other end left something unread
                chunk = b""
            if not chunk:
                raise EOFError
            self._came += chunk
        line = bytes(self._came[:end])
        del self._came[: end + 1]
        return self._parse(line)

    def is_silent(self, timeout_s: float = 0) -> bool:
        """Whether nothing has come since the last message, nor comes in this time."""
        return not self._came and not wait([self._end], timeout_s)

    def _parse(self, line: bytes) -> M:
        name, _, body = line.partition(b" ")
        if name not in self._kinds:
            raise BadMessageError(f"one that begins with {name[:40]!r}")
        try:
            return _adapter(self._kinds[name]).validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise BadMessageError(f"{name.decode()} with {where or 'a body'}: {first['msg']}") from error
