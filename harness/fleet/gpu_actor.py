"""The code of an actor on the host of its GPU: it runs the worker process there.

Nothing here imports Ray: cluster.py makes an actor of `GpuActor`, and tests use the class without Ray.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.devices import profiles
from harness.devices.facts import DeviceFacts
from harness.errors import UnavailableError
from harness.records.run_records import DeviceRecord
from harness.run.compile_ahead import CompilingAhead, Task, processes_ahead, rounds
from harness.run.process import Started, Worker, WorkerDiedError, WorkerProcess, begin_worker, start_worker
from harness.run.provenance import device_record, own_revision
from harness.worker.messages import Done, Event, Hello, Request, Start

# Variables that Ray sets in its processes by their number of CPUs; a worker must not inherit them.
SET_BY_RAY = ("OMP_NUM_THREADS",)


@dataclass(frozen=True)
class GpuLocation:
    """A GPU and its host as a worker there sees them; `visible` is the number of the GPU on the host."""

    host: str
    visible: str
    device: DeviceRecord
    facts: DeviceFacts
    revision: str | None


class GpuActor:
    """One GPU of a host, and the worker on it; `process` replaces `begin_worker`."""

    def __init__(self, process: Callable[[Start, Path], WorkerProcess] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="normbwd-")
        self._log = Path(self._folder.name) / "worker.log"
        self._process = process or begin_worker
        self._worker: Worker | None = None

    def forget_ray(self, keep: Sequence[str]) -> None:
        """Undo what the worker process would inherit from Ray, except the variables `keep`, which the user had set."""
        for name in set(SET_BY_RAY).difference(keep):
            os.environ.pop(name, None)
        # A spawned process imports the file of its parent's main module, which is one of Ray's.
        vars(sys.modules["__main__"]).pop("__file__", None)

    def host(self) -> str:
        """The name of the host; an actor that answers has its GPU."""
        return socket.gethostname()

    def launch(self, start: Start, time_limit_s: float) -> Hello:
        """Start a worker in place of the last one, and return its Hello; raises as `start_worker` does."""
        self.kill()
        started = self._started(start, time_limit_s)
        self._worker = started.worker
        return started.hello

    def place(self, device: str, hello: Hello) -> GpuLocation:
        """The GPU of the worker; raises UnavailableError where it is not the `device` of the command line."""
        host = self.host()
        profile, facts = profiles.choose(device, hello.available)
        if facts.kind == "cpu" and device != "cpu":
            raise UnavailableError(f"torch finds no GPU on {host}, where Ray has one; see `normbwd list devices` there")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("HIP_VISIBLE_DEVICES") or ""
        return GpuLocation(host, visible, device_record(profile, facts), facts, own_revision())

    def send(self, request: Request) -> None:
        """Hand a request to the worker; raises WorkerDiedError."""
        self._running().send(request)

    def receive(self, timeout_s: float) -> list[Event]:
        """The worker's next event and those that came with it; empty after `timeout_s`. Raises WorkerDiedError."""
        events: list[Event] = []
        try:
            while (event := self._running().receive(0.0 if events else timeout_s)) is not None:
                events.append(event)
                if isinstance(event, Done):
                    break  # no event follows before the next request
        except WorkerDiedError:
            if not events:  # otherwise the next call raises
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
        facts: DeviceFacts,
        time_limit_s: float,
    ) -> None:
        """Fill the compilers' caches of this host; `actors` on it, this one included, compile a part each."""
        most = processes_ahead(processes, facts.kind, actors)

        def launch(begun: Callable[[WorkerProcess], None]) -> WorkerProcess:
            return self._started(replace(start, asked=False), time_limit_s, begun).worker

        with CompilingAhead(rounds(tasks, most, facts.memory_bytes), launch, seed, time_limit_s, lambda: None) as ahead:
            ahead.wait_for(tasks)

    def log(self) -> str:
        """The output of the workers."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def close(self) -> None:
        """End the worker, and remove the temporary folder."""
        self.kill()
        self._folder.cleanup()

    def _running(self) -> Worker:
        assert self._worker is not None, "launch comes first"
        return self._worker

    def _started(
        self, start: Start, time_limit_s: float, begun: Callable[[WorkerProcess], None] = lambda _: None
    ) -> Started:
        return start_worker(start, self._log, time_limit_s, self._process, begun)
