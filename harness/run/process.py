"""Starts a worker process and talks to it: the parent sends requests, the worker answers with events, and may die."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol, get_args

from harness.errors import UnavailableError, UsageError
from harness.worker.channel import BadMessageError, Channel
from harness.worker.messages import Began, Event, Hello, Refused, Request, Start
from harness.worker.own_process import SWEEP_LIMIT_S, without_interrupts
from harness.worker.serve import serve

START_LIMIT_S = 180.0  # importing torch on a cold, slow disk
FATAL = "Fatal Python error: "  # where faulthandler begins; the frames follow, the innermost first
FRAME = re.compile(r'^  File "([^"<]+)", line (\d+)', re.MULTILINE)
GRACE_S = 3.0  # for compile pools to release their semaphores; otherwise Python warns of them at exit
EXIT_LIMIT_S = 10.0  # for a worker that closed its connection to end

FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGXCPU")  # of the kernel's OOM killer, a limit of CPU time, a person


class WorkerDiedError(Exception):
    """The worker ended unexpectedly; the message says how.

    `signal` is what killed it; those of FROM_OUTSIDE are probably nobody's fault in the worker.
    """

    def __init__(self, how: str, signal: str | None = None) -> None:
        super().__init__(how, signal)  # both, so that it can be pickled: a fleet sends it
        self.signal = signal

    def __str__(self) -> str:
        return self.args[0]


class Worker(Protocol):
    """A worker as the runner uses it; tests replace it by one that follows a script."""

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

    _ended = False

    def __init__(self, start: Start, log: Path, body: Callable[[Connection, Start, Path], None] = serve) -> None:
        context = multiprocessing.get_context("spawn")  # a forked child cannot use CUDA
        ours, theirs = context.Pipe()
        self._channel = Channel[Event](ours, get_args(Event))
        self._process = context.Process(target=body, args=(theirs, start, log), daemon=False)
        with without_interrupts():
            self._process.start()
        theirs.close()  # so that the death of the worker ends the stream

    def send(self, request: Request) -> None:
        """Hand over a request; raises WorkerDiedError where the worker is gone."""
        try:
            self._channel.send(request)
        except OSError as error:
            raise self._death() from error

    def receive(self, timeout_s: float) -> Event | None:
        """The next event, or None after `timeout_s` of silence; raises WorkerDiedError where no event can come."""
        try:
            return self._channel.receive(timeout_s)
        except BadMessageError as error:
            raise WorkerDiedError(f"the worker sent what is no message: {error}") from error
        except (EOFError, OSError) as error:
            raise self._death() from error

    def pause(self) -> None:
        """Stop the worker, and all that it forked, until `go_on`; nothing happens where there are no such signals."""
        self._signal_group("SIGSTOP")

    def go_on(self) -> None:
        """Let it go on."""
        self._signal_group("SIGCONT")

    def kill(self) -> None:
        """End the worker; an idle one gets GRACE_S to clean up after its libraries, one that hangs is killed then.

        It is done once: hours later the number of its group may be that of another process.
        """
        if self._ended:
            return
        self._channel.close()
        self._process.join(GRACE_S)
        self._signal_group("SIGKILL")  # and whatever it forked; its keeper ends the rest, and then itself
        self._process.join(SWEEP_LIMIT_S + GRACE_S)
        self._process.kill()
        self._process.join()
        self._ended = True

    def _signal_group(self, name: str) -> None:
        if not hasattr(os, "killpg") or not self._process.pid or self._ended:
            return
        with suppress(ProcessLookupError, PermissionError):
            try:
                os.killpg(self._process.pid, getattr(signal, name))
            except ProcessLookupError:  # it has no group of its own yet, or is gone and its keeper ends the rest
                if name != "SIGKILL" and self._process.is_alive():
                    os.kill(self._process.pid, getattr(signal, name))

    def _death(self) -> WorkerDiedError:
        self._process.join(EXIT_LIMIT_S)
        code = self._process.exitcode
        if code is None:
            return WorkerDiedError("the worker closed its connection")
        if code >= 0:
            return WorkerDiedError(f"the worker process exited with status {code}")
        name = signal.Signals(-code).name
        return WorkerDiedError(f"the worker process was killed by {name}", name)


@dataclass(frozen=True)
class Started:
    """A worker that is ready, and its Hello: the implementations and devices here."""

    worker: WorkerProcess
    hello: Hello


def begin_worker(start: Start, log: Path) -> WorkerProcess:
    """A worker that has begun to start, for `start_worker` to wait for."""
    return WorkerProcess(start, log)


def start_worker(
    start: Start,
    log: Path,
    time_limit_s: float = START_LIMIT_S,
    process: Callable[[Start, Path], WorkerProcess] = begin_worker,
    begun: Callable[[WorkerProcess], None] = lambda _: None,
) -> Started:
    """Start a worker and wait for its Hello; the import of each --impl file may take `time_limit_s`.

    `process` replaces `begin_worker`; `begun` is called with the worker before the wait.
    Raises UsageError or UnavailableError where the worker cannot serve.
    """
    begins = log.stat().st_size if log.exists() else 0  # what stands before is of earlier workers
    worker = process(start, log)
    begun(worker)
    try:
        return Started(worker, _wait_for_hello(worker, lambda: _last_words(log, begins), time_limit_s))
    except BaseException:
        worker.kill()
        raise


def _wait_for_hello(worker: Worker, last_words: Callable[[], str], time_limit_s: float) -> Hello:
    file: str | None = None  # the --impl file that is being imported
    while True:
        try:
            event = worker.receive(START_LIMIT_S if file is None else time_limit_s)
        except WorkerDiedError as death:
            where = "while it started" if file is None else f"while it imported {file}"
            raise UnavailableError(f"{death} {where}; its last words: {last_words()}") from death
        match event:
            case Began(impl=file):
                pass
            case Hello():
                return event
            case Refused():
                raise (UsageError if event.exit_code == UsageError.exit_code else UnavailableError)(event.message)
            case _ if file is not None:
                raise UsageError(
                    f"--impl {file}: its import or missing() did not end within {time_limit_s:g} s (--time-limit)"
                )
            case _:
                how = f"the worker did not start within {START_LIMIT_S:g} s"
                raise UnavailableError(f"{how}; its last words: {last_words()}")


def _last_words(log: Path, begins: int) -> str:
    """The last line of a worker's log, which begins at that byte; where a signal killed it, which one and where.

    That is the line of an adapter in impls/ that it was in, or else the innermost line.
    """
    text = log.read_bytes()[begins:].decode(errors="replace").strip() if log.exists() else ""
    _, fatal, death = text.rpartition(FATAL)
    if frames := FRAME.findall(death) if fatal else []:
        file, line = next((frame for frame in frames if "impls" in Path(frame[0]).parts), frames[0])
        return f"{death.splitlines()[0]}, in line {line} of {file}; mend or uninstall what is imported there"
    return text.splitlines()[-1] if text else "none"
