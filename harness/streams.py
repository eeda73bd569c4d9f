"""Standard output and error that never end a command: whatever the encoding, and where nobody reads any more."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, BinaryIO, cast

from harness.errors import UnavailableError

if TYPE_CHECKING:
    from typing_extensions import Buffer

GONE = (errno.EPIPE, errno.EIO)  # the reader of a pipe has closed it; the terminal has hung up


class _Forgiving(io.FileIO):
    """A file descriptor that drops what nobody can read any more, and on a full disk raises UnavailableError, once."""

    may_raise = True

    def write(self, data: Buffer, /) -> int | None:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in GONE and self.may_raise:
                self.may_raise = False
                raise UnavailableError(f"cannot write the answer: {error.strerror}; files are kept") from error
            return memoryview(data).nbytes


def make_forgiving() -> None:
    """Escape what the encoding of the streams lacks, and go on writing, to nobody, where a stream has closed.

    The exit code stays that of the answer: `gate FILE | head` must not pass because its reader left.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it is closed, and the next file that is opened would get its number
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue  # a program that calls `main` has put something else there
        stream.reconfigure(errors="backslashreplace")
        raw = getattr(stream.buffer, "raw", stream.buffer)  # with PYTHONUNBUFFERED there is no buffer
        if type(raw) is io.FileIO and type(stream) is io.TextIOWrapper:
            forgiving = _Forgiving(stream.fileno(), "wb", closefd=False)
            forgiving.may_raise = name == "stdout"
            setattr(
                sys,
                name,
                io.TextIOWrapper(
                    cast(BinaryIO, forgiving) if raw is stream.buffer else io.BufferedWriter(forgiving),
                    encoding=stream.encoding,
                    errors="backslashreplace",
                    line_buffering=stream.line_buffering,
                    write_through=raw is stream.buffer,
                ),
            )
