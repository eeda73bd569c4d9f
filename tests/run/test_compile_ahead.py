import signal
import threading
from collections import Counter

import pytest

from harness.cases import NormCase
from harness.cases.traffic import moved_bytes
from harness.run.compile_ahead import CompilingAhead, rounds
from harness.run.process import WorkerDiedError
from harness.worker.messages import Done, Warm

TASKS = [(NormCase("rms", rows, 64), impl) for rows in (1, 2, 3, 4) for impl in ("a", "b")]


class Workshop:
    """Launches workers that answer each task as `answer(task)` says: an event, None for silence, or an exception."""

    def __init__(self, answer=lambda task: Done()):
        self.lock = threading.Lock()
        self.answer = answer
        self.launched = []
        self.warmed = Counter()
        self.advanced = 0

    def launch(self, begun):
        worker = Apprentice(self)
        with self.lock:
            self.launched.append(worker)
        begun(worker)
        return worker

    def advance(self):
        with self.lock:
            self.advanced += 1

    def compiling(self, processes, tasks=TASKS):
        return CompilingAhead([(processes, tasks)], self.launch, 4, 2.5, self.advance)

    def run(self, processes, tasks=TASKS):
        with self.compiling(processes, tasks) as compiling:
            compiling.wait_for(tasks)
        assert all(worker.killed == 1 for worker in self.launched)
        assert self.advanced == len(tasks)
        return self


class Apprentice:
    def __init__(self, workshop):
        self.workshop = workshop
        self.killed = 0
        self.task = None
        self.paused = False

    def send(self, request):
        assert not self.killed
        assert isinstance(request, Warm)
        assert request.seed == 4
        self.task = (request.case, request.impl)
        with self.workshop.lock:
            self.workshop.warmed[self.task] += 1

    def receive(self, timeout_s):
        assert timeout_s <= 1
        event = self.workshop.answer(self.task)
        if isinstance(event, Exception):
            raise event
        return event

    def pause(self):
        self.paused = True

    def go_on(self):
        self.paused = False

    def kill(self):
        assert not self.paused, "a stopped process cannot end"
        self.killed += 1


def test_memory_limits_compile_processes():
    small, large, larger, largest = cases = [NormCase("rms", rows, 1 << 14) for rows in (64, 1 << 15, 1 << 16, 1 << 17)]
    held_gib = [8 * moved_bytes(case) / (1 << 30) for case in cases]
    assert [round(gib) for gib in held_gib] == [0, 24, 48, 96]
    tasks = [(case, impl) for case in cases for impl in ("a", "b")]
    assert rounds(tasks, 6, 150 << 30) == [
        (6, [(small, "a"), (small, "b")]),
        (5, [(large, "a"), (large, "b")]),
        (2, [(larger, "a"), (larger, "b")]),
    ]
    assert rounds(list(reversed(tasks)), 2, 250 << 30)[0] == (2, [(larger, "b"), (larger, "a"), *reversed(tasks[:4])])
    assert rounds(tasks, 6, None) == [(6, tasks)]
    assert rounds(tasks, 1, 64 << 30) == [(1, tasks)]  # asked for
    assert rounds([(largest, "a")], 6, 64 << 30) == []


@pytest.mark.parametrize("processes", [1, 3, 100])
def test_each_task_is_done_once_by_all_workers(processes):
    done = Workshop().run(processes)
    assert done.warmed == Counter(TASKS)
    assert 1 <= len(done.launched) <= min(processes, len(TASKS))


@pytest.mark.parametrize("failure", [WorkerDiedError("killed by SIGSEGV"), None], ids=["death", "silence"])
def test_dead_compiler_is_replaced_without_retry(failure):
    done = Workshop(lambda task: failure if task == TASKS[2] else Done()).run(1)
    assert done.warmed == Counter(TASKS)
    assert len(done.launched) == 2


@pytest.fixture
def interruptible():
    """Ctrl-C raises, also where the tests were started in the background, whose processes ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_workers_that_still_compile():
    killed = threading.Event()

    class Busy(Apprentice):
        def receive(self, timeout_s):
            signal.raise_signal(signal.SIGINT)  # Ctrl-C reaches the main thread while this one waits
            assert killed.wait(60)
            raise WorkerDiedError("killed")

        def kill(self):
            super().kill()
            killed.set()

    workshop = Workshop()

    def launch(begun):
        worker = Busy(workshop)
        begun(worker)
        return worker

    workshop.launch = launch
    with pytest.raises(KeyboardInterrupt), workshop.compiling(1) as compiling:
        compiling.wait_for(TASKS)
    assert killed.is_set()


def test_it_waits_for_the_tasks_of_one_case_alone_and_for_none_that_nobody_compiles():
    begun = threading.Semaphore(0)
    go_on = threading.Event()

    def answer(task):
        if task == TASKS[2]:
            begun.release()
            assert go_on.wait(60)
        return Done()

    workshop = Workshop(answer)
    with workshop.compiling(1) as compiling:
        compiling.wait_for([*TASKS[:2], (NormCase("layer", 3, 3), "a")])
        assert begun.acquire(timeout=60)
        assert workshop.advanced == 2
        go_on.set()
        compiling.wait_for(TASKS)
    assert workshop.warmed == Counter(TASKS)


def test_paused_compilers_stand_still_and_so_does_one_that_is_launched_then():
    launching, paused, launched = threading.Event(), threading.Event(), threading.Event()
    hold = threading.Event()

    def answer(task):
        assert hold.wait(60)
        return Done()

    class Slow(Workshop):
        def launch(self, begun):
            launching.set()
            assert paused.wait(60)
            worker = super().launch(begun)
            launched.set()
            return worker

    workshop = Slow(answer)
    with workshop.compiling(1) as compiling:
        compiling.wait_for([])
        assert launching.wait(60)
        compiling.pause()
        paused.set()
        assert launched.wait(60)
        (worker,) = workshop.launched
        assert worker.paused
        hold.set()
        compiling.wait_for(TASKS)
        assert not worker.paused
        compiling.pause()
    assert workshop.warmed == Counter(TASKS)


def test_a_compiler_that_ends_while_others_are_timed_still_counts_as_our_own():
    compiles, paused, ended = threading.Event(), threading.Event(), threading.Event()

    def answer(task):
        compiles.set()
        assert paused.wait(60)
        return Done()  # just before it was stopped

    workshop = Workshop(answer)
    with workshop.compiling(1, TASKS[:1]) as compiling:
        compiling.wait_for([])
        assert compiles.wait(60)
        (worker,) = workshop.launched
        worker.kill = ended.set
        compiling.pause()
        paused.set()
        assert ended.wait(60)
        assert compiling.processes == 1
        compiling.wait_for(TASKS[:1])
        compiling.pause()
        assert compiling.processes == 0
