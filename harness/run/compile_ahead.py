"""Compiling ahead: several workers compile at once, and leave binaries in disk caches, or in the folder of the run.

They go on while the first cases are measured, and are stopped by a signal whenever the device has to be quiet.
Nothing is measured here. A failure is not recorded here, because the trial will fail in the same way and record it.
Triton's tuners have all their configurations compiled here; each process that measures times them itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.cases import DeviceKind, NormCase
from harness.cases.catalogue import compiled_alike
from harness.cases.traffic import moved_bytes
from harness.errors import UnavailableError, UsageError
from harness.records.run_records import ImplRecord
from harness.run.plan import Job
from harness.run.process import WorkerDiedError, WorkerProcess
from harness.worker.messages import Warm
from harness.worker.own_process import usable_cores

Task = tuple[NormCase, str]  # a case and an implementation

# Device memory that a compiling process may take, over the bytes that its backward moves: inputs while they are drawn,
# y, gradients, what a compiler tries, and as much again to spare.
MEMORY_OVER_MOVED = 8


def tasks_of(jobs: Iterable[Job], impls: Iterable[ImplRecord]) -> list[Task]:
    """The distinct (case, implementation) pairs that the jobs will compile, each once for all processes."""
    compiled = {item.name for item in impls if item.compiles_ahead and not item.missing}
    return list(dict.fromkeys(task_of(job.case, name) for job in jobs for name in job.impls if name in compiled))


def task_of(case: NormCase, impl: str) -> Task:
    """What is compiled for this case and implementation."""
    return compiled_alike(case), impl


def processes_ahead(asked: int | None, device: DeviceKind, sharing: int = 1) -> int:
    """How many processes compile ahead: as asked, or else one a spare core on a GPU host, none for a CPU.

    `sharing` is the number of runs that share the cores, this one included.
    """
    if asked is not None:
        return asked
    cores = usable_cores() // sharing
    return min(12, cores - 2) if device == "cuda" and cores > 4 else 0


def rounds(tasks: Iterable[Task], processes: int, memory_bytes: int | None) -> list[tuple[int, list[Task]]]:
    """Group the tasks by how many of them, at most `processes`, fit into the device's memory beside what is measured.

    The groups stand in the order of their first tasks. A task that leaves no room for a second one is left out:
    compiling it ahead would save no time.
    """
    if processes < 1:
        return []
    by_workers: dict[int, list[Task]] = {}
    for case, impl in tasks:
        workers = (
            processes
            if memory_bytes is None
            else min(processes, memory_bytes // max(1, MEMORY_OVER_MOVED * moved_bytes(case)) - 1)
        )
        if workers > 1 or processes == 1:
            by_workers.setdefault(max(1, workers), []).append((case, impl))
    return list(by_workers.items())


def end(workers: Sequence[WorkerProcess]) -> None:
    """End them all at once, also those that stand still."""
    for worker in workers:
        worker.go_on()
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda worker: worker.kill(), workers))


class CompilingAhead:
    """Workers that compile the rounds of tasks one after the other, until the end of the `with` block.

    `launch` starts a worker and calls its argument with it before it waits for its Hello; `advance` is called after
    each task. After `pause` every worker stands still, those that are launched later too, until `go_on`.
    """

    def __init__(
        self,
        rounds: Sequence[tuple[int, Sequence[Task]]],
        launch: Callable[[Callable[[WorkerProcess], None]], WorkerProcess],
        seed: int,
        time_limit_s: float,
        advance: Callable[[], None],
    ) -> None:
        self.impls = frozenset(impl for _, tasks in rounds for _, impl in tasks)
        self.processes = 0  # the most workers there were since the last pause: one may end while others are timed
        self._rounds = rounds
        self._launch = launch
        self._seed = seed
        self._time_limit_s = time_limit_s
        self._advance = advance
        self._unfinished = {task for _, tasks in rounds for task in tasks}
        self._changed = threading.Condition()
        self._running = threading.Event()
        self._workers: list[WorkerProcess] = []
        self._over = False
        self._thread = threading.Thread(target=self._compile, daemon=True)

    def __enter__(self) -> CompilingAhead:
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers that still compile, which would otherwise keep this process from ending."""
        with self._changed:
            self._over = True
            compiling = list(self._workers)
        self.go_on()
        end(compiling)
        if self._thread.ident is not None:
            self._thread.join()

    def wait_for(self, tasks: Iterable[Task]) -> None:
        """Begin at the first call, or go on; wait until each of these tasks that is in a round was tried."""
        awaited = set(tasks)
        self.go_on()
        if self._thread.ident is None:
            self._thread.start()
        with self._changed:
            while awaited & self._unfinished:  # without a limit, Ctrl-C would have to wait too
                self._changed.wait(0.2)

    def pause(self) -> None:
        """Stop the workers where they are."""
        with self._changed:
            if self._running.is_set():
                self._running.clear()
                self.processes = len(self._workers)
                for worker in self._workers:
                    worker.pause()

    def go_on(self) -> None:
        """Let the workers go on."""
        with self._changed:
            if not self._running.is_set():
                for worker in self._workers:
                    worker.go_on()
                self._running.set()

    def _compile(self) -> None:
        for workers, tasks in self._rounds:
            waiting = deque(tasks)
            threads = [
                threading.Thread(target=self._compile_waiting, args=(waiting,), daemon=True)
                for _ in range(min(workers, len(tasks)))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _compile_waiting(self, waiting: deque[Task]) -> None:
        worker: WorkerProcess | None = None
        while not self._over:
            try:
                task = waiting.popleft()
            except IndexError:
                break
            try:
                self._running.wait()
                worker = worker or self._launch(self._register)
                worker.send(Warm(*task, self._seed))
                self._receive(worker)
            except (WorkerDiedError, UnavailableError, UsageError):  # the last two from a worker that cannot start
                self._end(worker)
                worker = None
            finally:
                self._finish(task)
        self._end(worker)

    def _finish(self, task: Task) -> None:
        with self._changed:
            if not self._over:
                self._advance()
            self._unfinished.remove(task)
            self._changed.notify_all()

    def _register(self, worker: WorkerProcess) -> None:
        with self._changed:
            self._workers.append(worker)
            self.processes = max(self.processes, len(self._workers))
            over = self._over
            if not self._running.is_set():
                worker.pause()
        if over:  # it was launched while the others were ended
            worker.kill()

    def _end(self, worker: WorkerProcess | None) -> None:
        with self._changed:
            if worker is None or self._over:  # then it is ended by `__exit__`
                return
        worker.kill()
        with self._changed:  # only now it is off the device
            self._workers.remove(worker)

    def _receive(self, worker: WorkerProcess) -> None:
        """Wait for the end of a task; the time for which the worker stands still does not count."""
        waited_s = 0.0
        while waited_s < self._time_limit_s:
            self._running.wait()
            slice_s = min(1.0, self._time_limit_s - waited_s)
            if worker.receive(slice_s) is not None:
                return
            waited_s += slice_s
        raise WorkerDiedError("silent")
