"""One GPU of a fleet, driven by a thread of this process: the usual runner, whose worker is in an actor."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from harness.errors import UnavailableError, UsageError
from harness.fleet.cluster import GpuLostError, RemoteSeat
from harness.fleet.seat import Place
from harness.fleet.shares import Shares
from harness.results.schema import AnyRecord, ConditionsRecord, RowRecord, SelfTestRecord
from harness.run.compile_ahead import Task
from harness.run.invocation import Invocation
from harness.run.plan import Job, remaining
from harness.run.resolve import selftests_on
from harness.run.runner import Progress, Records, Runner
from harness.run.session import Planned
from harness.worker.messages import Event, Hello, Request

ANSWER_S = 60.0  # that a host may take for an answer beyond what it was told to wait itself


@dataclass(frozen=True)
class FarWorker:
    """The worker process of a seat, as the runner knows workers."""

    seat: RemoteSeat
    heard: deque[Event] = field(default_factory=deque[Event])

    def send(self, request: Request) -> None:
        """Hand over a request."""
        self.seat.ask("send", request, limit_s=ANSWER_S)

    def receive(self, timeout_s: float) -> Event | None:
        """The next event, or None where none came in time."""
        if not self.heard:
            self.heard.extend(self.seat.ask("receive", timeout_s, limit_s=timeout_s + ANSWER_S))
        return self.heard.popleft() if self.heard else None

    def kill(self) -> None:
        """End it."""
        with suppress(GpuLostError):
            self.seat.ask("kill", limit_s=ANSWER_S)


class WriteError(UnavailableError):
    """The results cannot be written: the end of all lanes."""


@dataclass(frozen=True)
class Sitting:
    """A seat with a worker that is ready, and what it has found."""

    seat: RemoteSeat
    hello: Hello
    place: Place


@dataclass
class Stamped:
    """Where a lane's records go: the results file, with the number of the GPU; and the rows of the job at work."""

    results: Records
    gpu: int
    rows: list[RowRecord] = field(default_factory=list[RowRecord])

    def append(self, record: AnyRecord) -> None:
        """Keep one."""
        if isinstance(record, RowRecord | SelfTestRecord | ConditionsRecord):
            record = record.model_copy(update={"gpu": self.gpu})
        try:
            self.results.append(record)
        except UnavailableError as error:
            raise WriteError(str(error)) from error
        if isinstance(record, RowRecord):
            self.rows.append(record)


@dataclass(frozen=True)
class Run:
    """What the lanes of one kind of GPU share; `number_of` a GPU writes it down, and raises where it may not run."""

    planned: Planned
    shares: Shares
    results: Records
    number_of: Callable[[Sitting], int]
    hard_failures: Counter[str] = field(default_factory=Counter)
    untimed: list[RowRecord] = field(default_factory=list[RowRecord])


class Lane:
    """One GPU at a time, for as long as there are jobs; `new_seat` makes a seat that may still wait for its GPU.

    `fault` says why a lane has ended that could have gone on; `stages_s` and `logs` are what its workers took and said.
    """

    def __init__(self, number: int, invocation: Invocation, new_seat: Callable[[], RemoteSeat]) -> None:
        self.number = number
        self.invocation = invocation
        self.seat: RemoteSeat | None = None
        self.fault: str | None = None
        self.stages_s: defaultdict[str, float] = defaultdict(float)
        self.logs: list[str] = []
        self._new_seat = new_seat
        self._held: Job | None = None
        self._has_worker = False

    def get_gpu(self, wanted: Callable[[], bool]) -> None:
        """Wait for a GPU of the lane's own; raises GpuLostError where that is not `wanted` any more."""
        self.seat = self._new_seat()
        self.seat.ask("host", wanted=wanted)

    def sit(self) -> Sitting:
        """Start a worker on the GPU; raises UsageError and UnavailableError as a worker does, and GpuLostError."""
        assert self.seat is not None, "a GPU is got first"
        hello: Hello = self.seat.ask("launch", self.invocation.start(), self.invocation.time_limit_s)
        place: Place = self.seat.ask("place", self.invocation.device, hello, limit_s=ANSWER_S)
        self._has_worker = True
        return Sitting(self.seat, hello, place)

    def compile(self, sitting: Sitting, tasks: Sequence[Task], seed: int, seats: int) -> None:
        """Have a host compile tasks; what goes wrong there is met again when they are measured."""
        with suppress(GpuLostError):
            sitting.seat.ask(
                "compile_ahead",
                tasks,
                self.invocation.start(),
                seed,
                processes=self.invocation.compile_ahead,
                seats=seats,
                facts=sitting.place.facts,
                time_limit_s=self.invocation.time_limit_s,
            )

    def forget_tuning(self) -> None:
        """Have the host forget what it tuned while it compiled."""
        with suppress(GpuLostError):
            assert self.seat is not None, "a lane that has compiled has a seat"
            self.seat.ask("forget_tuning", limit_s=ANSWER_S)

    def work(self, run: Run, first: Sitting, progress: Progress) -> None:
        """Measure until there is nothing more to do, on another GPU where one is lost.

        Raises WriteError where the results cannot be written.
        """
        sitting: Sitting | None = first
        try:
            while not run.shares.over:
                if sitting is None:
                    sitting = self._sit_again(run, progress)
                elif run.shares.wait(self.number):
                    sitting = self._measure(run, sitting, progress)
        except WriteError:
            raise
        except (UsageError, UnavailableError) as error:
            self.fault = str(error)
            progress.say(f"the run goes on without this GPU: {error}")
        finally:
            run.shares.depart(self.number)
            self._close(sitting)

    def end(self) -> None:
        """End what the lane has on another host, at once."""
        if self.seat is not None:
            self.seat.end()

    def _sit_again(self, run: Run, progress: Progress) -> Sitting | None:
        """Another GPU, as soon as one is free; None where nothing is left to do meanwhile."""
        progress.say("waiting for a GPU")
        try:
            self.get_gpu(lambda: not run.shares.over)
            sitting = self.sit()
        except GpuLostError as lost:
            if not run.shares.over:
                raise UnavailableError(str(lost)) from lost
            return None
        run.number_of(sitting)
        run.shares.arrive(self.number)
        return sitting

    def _measure(self, run: Run, sitting: Sitting, progress: Progress) -> Sitting | None:
        """Take jobs for as long as there are some; None where the GPU is lost meanwhile."""
        sink = Stamped(run.results, run.number_of(sitting))
        runner = Runner(
            launch=lambda process: self._launch(sitting, process),
            results=sink,
            settings=run.planned.settings,
            profile=run.planned.profile,
            progress=progress,
            missing={item.name: item.missing for item in sitting.hello.implementations if item.missing},
            time_limit_s=self.invocation.time_limit_s,
            worker=FarWorker(sitting.seat) if self._has_worker else None,
            selftests=selftests_on(run.planned.facts.kind, self.invocation),
            hard_failures=run.hard_failures,
            stages_s=self.stages_s,
            untimed=run.untimed,
        )
        self._has_worker = False
        try:
            runner.run(self._jobs(run.shares, sink))
        except GpuLostError as lost:
            sitting.seat.end()
            if not run.shares.over:
                progress.say(f"lost on {sitting.place.host}: {lost}")
            self._hand_over(run, sink, str(lost))
            return None
        return sitting

    def _launch(self, sitting: Sitting, process: int) -> FarWorker:
        try:
            sitting.seat.ask("launch", self.invocation.start(process), self.invocation.time_limit_s)
        except (UsageError, UnavailableError) as error:  # it could be started here before
            raise GpuLostError(str(error)) from error
        return FarWorker(sitting.seat)

    def _jobs(self, shares: Shares, sink: Stamped) -> Generator[Job]:
        """One job after the other; when the next one is asked for, the one before has all its rows."""
        while (job := shares.take(self.number)) is not None:
            self._held = job
            sink.rows.clear()
            yield job
            self._held = None
            shares.finish()

    def _hand_over(self, run: Run, sink: Stamped, how: str) -> None:
        """Give what is left of the job at work to others; the second time it is written off."""
        job, self._held = self._held, None
        left = next(iter(remaining([job], sink.rows)), None) if job else None
        if run.shares.lose(self.number, job, left) or left is None:
            return
        for impl in left.impls:
            reason = f"the GPU was lost in two tries: {how}"
            sink.append(RowRecord(case=left.case, impl=impl, status="crashed", reason=reason, process=left.process))

    def _close(self, sitting: Sitting | None) -> None:
        if sitting is not None:
            with suppress(GpuLostError):
                self.logs.append(sitting.seat.ask("log", limit_s=ANSWER_S))
                sitting.seat.ask("close", limit_s=ANSWER_S)
        self.end()
