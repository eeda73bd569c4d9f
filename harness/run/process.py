"""A worker as the parent sees it: a process that is sent requests, answers with events, and may die."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from harness.worker.messages import Event, Request, Start
from harness.worker.serve import serve

GRACE_S = 3.0  # for compile pools to give back their semaphores, or Python complains of them at the end


class WorkerDiedError(Exception):
    """The worker ended without being asked; the message says how."""


class Worker(Protocol):
    """What the runner asks of a worker; tests answer with a script."""

    def send(self, request: Request) -> None:
        """Hand over a request."""
        ...

    def receive(self, timeout_s: float) -> Event | None:
        """The next event, or None where none came in time; WorkerDiedError where none can come."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class WorkerProcess:
    """A spawned worker; its output is appended to `log`."""

    def __init__(self, start: Start, log: Path) -> None:
        context = multiprocessing.get_context("spawn")  # a forked child cannot use CUDA
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, start, log), daemon=False)
        self._process.start()
        theirs.close()  # so that its death is seen as the end of the stream

    def send(self, request: Request) -> None:
        """Hand over a request; raises WorkerDiedError where nobody is there to take it."""
        try:
            self._connection.send(request)
        except OSError as error:
            raise WorkerDiedError(self._epitaph()) from error

    def receive(self, timeout_s: float) -> Event | None:
        """The next event, or None after `timeout_s` of silence; raises WorkerDiedError at the end of the stream."""
        try:
            return self._connection.recv() if self._connection.poll(timeout_s) else None
        except (EOFError, OSError) as error:
            raise WorkerDiedError(self._epitaph()) from error

    def kill(self) -> None:
        """End it: at once where it hangs; an idle one sees the end of the stream and tidies up after its libraries."""
        self._connection.close()
        self._process.join(GRACE_S)
        self._process.kill()
        self._process.join()
        if hasattr(os, "killpg") and self._process.pid:  # whatever it forked
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _epitaph(self) -> str:
        self._process.join(10)
        code = self._process.exitcode
        if code is None:
            return "the worker closed its connection"
        if code >= 0:
            return f"the worker process exited with status {code}"
        return f"the worker process was killed by {signal.Signals(-code).name}"
