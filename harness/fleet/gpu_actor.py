"""What an actor does on the host of its GPU: it runs the worker process there, and answers for the host.

Nothing here imports Ray: an actor is made of `GpuActor` in cluster.py, and tests call it as it is.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import devices
from harness.errors import UnavailableError
from harness.results.run_records import DeviceRecord
from harness.run.compile_ahead import Task, compile_ahead, default_processes, rounds
from harness.run.process import Started, Worker, WorkerDiedError, start_worker
from harness.run.provenance import device_record, own_revision
from harness.worker.messages import Done, Event, Hello, Request, Start

# What Ray sets for a process of its own, by CPUs that were asked for: a worker is to find a host as it is.
RAYS_OWN = ("OMP_NUM_THREADS",)


@dataclass(frozen=True)
class Place:
    """A GPU of a host as a worker there finds it; `visible` is how the host numbers the GPU."""

    host: str
    visible: str
    device: DeviceRecord
    facts: devices.DeviceFacts
    revision: str | None


class GpuActor:
    """One GPU of a host, and the worker on it; `process` starts one where WorkerProcess is not to."""

    def __init__(self, process: Callable[[Start, Path], Worker] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="normbwd-")
        self._log = Path(self._folder.name) / "worker.log"
        self._process = process
        self._worker: Worker | None = None

    def forget_ray(self, kept: Sequence[str]) -> None:
        """Make a process of Ray's own one whose children are as they would be without; `kept` was set before Ray."""
        for name in set(RAYS_OWN).difference(kept):
            os.environ.pop(name, None)
        # A spawned process imports the file of its parent's main module, which is one of Ray's.
        vars(sys.modules["__main__"]).pop("__file__", None)

    def host(self) -> str:
        """The name of the host; who hears it knows that the actor has its GPU."""
        return socket.gethostname()

    def launch(self, start: Start, time_limit_s: float) -> Hello:
        """Start a worker in place of the one before, and hear what is here; raises as `start_worker` does."""
        self.kill()
        started = self._started(start, time_limit_s)
        self._worker = started.worker
        return started.hello

    def place(self, asked: str, hello: Hello) -> Place:
        """The GPU that the worker has found; raises UnavailableError where it is not the device that was asked for."""
        host = self.host()
        profile, facts = devices.choose(asked, hello.available)
        if facts.kind == "cpu" and asked != "cpu":
            raise UnavailableError(f"torch finds no GPU on {host}, where Ray has one; see `normbwd list devices` there")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("HIP_VISIBLE_DEVICES") or ""
        return Place(host, visible, device_record(profile, facts), facts, own_revision())

    def send(self, request: Request) -> None:
        """Hand a request to the worker; raises WorkerDiedError."""
        self._running().send(request)

    def receive(self, timeout_s: float) -> list[Event]:
        """The worker's next event and those that came with it, none where none came in time; raises WorkerDiedError."""
        events: list[Event] = []
        try:
            while (event := self._running().receive(0.0 if events else timeout_s)) is not None:
                events.append(event)
                if isinstance(event, Done):
                    break  # a worker is silent until it is asked again
        except WorkerDiedError:
            if not events:  # or it is found dead when it is asked next
                raise
        return events

    def kill(self) -> None:
        """End the worker, if there is one."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def compile_ahead(
        self,
        tasks: Sequence[Task],
        start: Start,
        seed: int,
        *,
        processes: int | None,
        actors: int,
        facts: devices.DeviceFacts,
        time_limit_s: float,
    ) -> None:
        """Fill the compilers' caches of this host, of which so many other actors compile their own part meanwhile."""
        at_once = default_processes(facts.kind, actors) if processes is None else processes
        for workers, of_round in rounds(tasks, at_once, facts.memory_bytes):
            compile_ahead(
                of_round,
                lambda: self._started(replace(start, asked=False), time_limit_s).worker,
                seed,
                workers,
                time_limit_s,
                lambda: None,
            )

    def log(self) -> str:
        """What the workers printed."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def close(self) -> None:
        """End the worker, and leave nothing."""
        self.kill()
        self._folder.cleanup()

    def _running(self) -> Worker:
        assert self._worker is not None, "a worker is launched before it is asked"
        return self._worker

    def _started(self, start: Start, time_limit_s: float) -> Started:
        return start_worker(start, self._log, time_limit_s, self._process)
