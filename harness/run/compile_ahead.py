"""Compiling ahead: several workers prepare what is compiled, so that its result lies in the compilers' disk caches.

Nothing is measured here and nothing that fails here is recorded: the trial meets it again. What Triton's tuners choose
from is compiled here, and timed by each process that measures.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.cases import DeviceKind, NormCase
from harness.cases.catalogue import compiled_alike
from harness.cases.traffic import moved_bytes
from harness.errors import UnavailableError, UsageError
from harness.results.run_records import ImplRecord
from harness.run.plan import Job
from harness.run.process import Worker, WorkerDiedError
from harness.worker.messages import Warm

Task = tuple[NormCase, str]  # a case and an implementation

# Of the bytes that a backward moves, those that a process which compiles it is given room for: inputs while they are
# made, y, gradients, what a compiler tries, and as much again to spare.
HELD = 8


def tasks_of(jobs: Iterable[Job], impls: Iterable[ImplRecord]) -> list[Task]:
    """What the jobs will compile, each once for all processes."""
    compiled = {item.name for item in impls if item.compiles_ahead and not item.missing}
    return list(
        dict.fromkeys((compiled_alike(job.case), name) for job in jobs for name in job.impls if name in compiled)
    )


def processes_here(device: DeviceKind, sharing: int = 1) -> int:
    """How many processes compile ahead by default: as many as there are cores to spare, where a GPU waits for them.

    `sharing` runs, this one among them, share the cores.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    cores //= sharing
    return min(12, cores - 2) if device == "cuda" and cores > 4 else 0


def rounds(tasks: Iterable[Task], processes: int, memory_bytes: int | None) -> list[tuple[int, list[Task]]]:
    """The tasks by how many of `processes` the device's memory has room for at once, most first.

    What one process alone has room for is left out: it is compiled as soon when its turn comes.
    """
    if processes < 1:
        return []
    by_room: dict[int, list[Task]] = {}
    for case, impl in tasks:
        room = processes if memory_bytes is None else min(processes, memory_bytes // max(1, HELD * moved_bytes(case)))
        if room > 1 or processes == 1:
            by_room.setdefault(max(1, room), []).append((case, impl))
    return sorted(by_room.items(), reverse=True)


def compile_ahead(
    tasks: Sequence[Task],
    launch: Callable[[], Worker],
    seed: int,
    processes: int,
    time_limit_s: float,
    advance: Callable[[], None],
) -> None:
    """Work off (case, implementation) pairs with `processes` workers; `advance` is called after each pair."""
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    stop = threading.Event()
    launched: list[Worker] = []

    def launch_known() -> Worker:
        launched.append(launch())
        return launched[-1]

    threads = [
        threading.Thread(target=_drain, args=(waiting, launch_known, seed, time_limit_s, advance, stop), daemon=True)
        for _ in range(min(processes, len(tasks)))
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a bare join would not let Ctrl-C through
                thread.join(0.2)
    except BaseException:  # after Ctrl-C some still compile, and would keep this process from ending
        stop.set()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker: worker.kill(), launched))
        raise


def _drain(
    waiting: queue.SimpleQueue[Task],
    launch: Callable[[], Worker],
    seed: int,
    time_limit_s: float,
    advance: Callable[[], None],
    stop: threading.Event,
) -> None:
    worker: Worker | None = None
    while not stop.is_set():
        try:
            case, impl = waiting.get_nowait()
        except queue.Empty:
            break
        try:
            worker = worker or launch()
            worker.send(Warm(case, impl, seed))
            if worker.receive(time_limit_s) is None:
                raise WorkerDiedError("silent")
        except (WorkerDiedError, UnavailableError, UsageError):  # the last two from a worker that cannot start
            if worker is not None:
                worker.kill()
            worker = None
        advance()
    if worker is not None:
        worker.kill()
