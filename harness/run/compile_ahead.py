"""Compiling ahead: several workers compile backwards at once, and leave the binaries in the compilers' disk caches.

Nothing is measured here. A failure is not recorded here, because the trial will fail in the same way and record it.
Triton's tuners have all their configurations compiled here; each process that measures times them itself.
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
from harness.records.run_records import ImplRecord
from harness.run.plan import Job
from harness.run.process import Worker, WorkerDiedError
from harness.worker.messages import Warm

Task = tuple[NormCase, str]  # a case and an implementation

# Device memory that a compiling process may take, over the bytes that its backward moves: inputs while they are drawn,
# y, gradients, what a compiler tries, and as much again to spare.
MEMORY_OVER_MOVED = 8


def tasks_of(jobs: Iterable[Job], impls: Iterable[ImplRecord]) -> list[Task]:
    """The distinct (case, implementation) pairs that the jobs will compile, each once for all processes."""
    compiled = {item.name for item in impls if item.compiles_ahead and not item.missing}
    return list(
        dict.fromkeys((compiled_alike(job.case), name) for job in jobs for name in job.impls if name in compiled)
    )


def default_processes(device: DeviceKind, sharing: int = 1) -> int:
    """How many processes compile ahead by default: one a spare core on a GPU host, none for a CPU.

    `sharing` is the number of runs that share the cores, this one included.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    cores //= sharing
    return min(12, cores - 2) if device == "cuda" and cores > 4 else 0


def rounds(tasks: Iterable[Task], processes: int, memory_bytes: int | None) -> list[tuple[int, list[Task]]]:
    """Group the tasks by how many of them fit into the device's memory at once, at most `processes`; most first.

    A task that fills the memory alone is left out: compiling it ahead would save no time.
    """
    if processes < 1:
        return []
    by_workers: dict[int, list[Task]] = {}
    for case, impl in tasks:
        workers = (
            processes
            if memory_bytes is None
            else min(processes, memory_bytes // max(1, MEMORY_OVER_MOVED * moved_bytes(case)))
        )
        if workers > 1 or processes == 1:
            by_workers.setdefault(max(1, workers), []).append((case, impl))
    return sorted(by_workers.items(), reverse=True)


def compile_ahead(
    tasks: Sequence[Task],
    launch: Callable[[], Worker],
    seed: int,
    processes: int,
    time_limit_s: float,
    advance: Callable[[], None],
) -> None:
    """Compile (case, implementation) pairs with `processes` workers; `advance` is called after each pair."""
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    stop = threading.Event()
    launched: list[Worker] = []

    def launch_recorded() -> Worker:
        launched.append(launch())
        return launched[-1]

    threads = [
        threading.Thread(
            target=_compile_waiting, args=(waiting, launch_recorded, seed, time_limit_s, advance, stop), daemon=True
        )
        for _ in range(min(processes, len(tasks)))
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a bare join would not let Ctrl-C through
                thread.join(0.2)
    except BaseException:  # after Ctrl-C, workers that still compile would keep this process from ending
        stop.set()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker: worker.kill(), launched))
        raise


def _compile_waiting(
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
