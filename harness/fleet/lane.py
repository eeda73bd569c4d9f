"""Drives one GPU of a fleet from a thread of this process, with the usual runner and a worker in an actor."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from harness.errors import UnavailableError, UsageError
from harness.fleet.cluster import GpuLostError, RemoteActor
from harness.fleet.gpu_actor import GpuLocation
from harness.fleet.shares import Shares
from harness.fleet.team import ReadyGpu, Team
from harness.records.file import AnyRecord, stamped
from harness.records.reasons import Reason
from harness.records.schema import RowRecord
from harness.run.compile_ahead import Task
from harness.run.invocation import Invocation
from harness.run.plan import Job, remaining
from harness.run.progress import Display
from harness.run.resolve import selftests_on
from harness.run.runner import Records, Runner
from harness.worker.messages import Event, Hello, Request

POLL_S = 0.5  # between checks whether a GPU is still wanted
ANSWER_S = 60.0  # a host's time to answer, beyond the timeout of the call itself


@dataclass(frozen=True)
class FarWorker:
    """The worker process of an actor, with the interface of `harness.run.process.Worker`."""

    actor: RemoteActor
    received: deque[Event] = field(default_factory=deque[Event])

    def send(self, request: Request) -> None:
        """Hand over a request."""
        self.actor.ask("send", request, limit_s=ANSWER_S)

    def receive(self, timeout_s: float) -> Event | None:
        """The next event, or None where none came in time."""
        if not self.received:
            self.received.extend(self.actor.ask("receive", timeout_s, limit_s=timeout_s + ANSWER_S))
        return self.received.popleft() if self.received else None

    def kill(self) -> None:
        """End it."""
        with suppress(GpuLostError):
            self.actor.ask("kill", limit_s=ANSWER_S)


class WriteError(UnavailableError):
    """The results cannot be written: the end of all lanes."""


@dataclass
class Stamped:
    """The sink of a lane's records: writes them with the GPU's number, and holds the `rows` of the job at work."""

    results: Records
    gpu: int
    rows: list[RowRecord] = field(default_factory=list[RowRecord])

    def append(self, record: AnyRecord) -> None:
        """Write one record."""
        record = stamped(record, self.gpu)
        try:
            self.results.append(record)
        except UnavailableError as error:
            raise WriteError(str(error)) from error
        if isinstance(record, RowRecord):
            self.rows.append(record)


class Lane:
    """One GPU at a time, for as long as there are jobs; `new_actor` makes an actor that may still wait for its GPU.

    `fault` says why a lane ended early; `stages_s` has the times of its workers, `logs` their output.
    """

    def __init__(self, number: int, invocation: Invocation, new_actor: Callable[[], RemoteActor]) -> None:
        self.number = number
        self.fault: str | None = None
        self.stages_s: defaultdict[str, float] = defaultdict(float)
        self.logs: list[str] = []
        self._invocation = invocation
        self._new_actor = new_actor
        self._actor: RemoteActor | None = None
        self._gpu: ReadyGpu | None = None
        self._job: Job | None = None
        self._has_worker = False

    @property
    def gpu(self) -> ReadyGpu:
        """The GPU of the lane."""
        assert self._gpu is not None, "start_worker comes first"
        return self._gpu

    def request_gpu(self) -> None:
        """Make an actor, which waits for a GPU."""
        self._actor = self._new_actor()

    def has_gpu(self, timeout_s: float = 0.0) -> bool:
        """Whether the actor has its GPU within so many seconds; raises GpuLostError."""
        assert self._actor is not None, "request_gpu comes first"
        return self._actor.has_gpu(timeout_s)

    def start_worker(self) -> None:
        """Start a worker on the GPU; raises UsageError and UnavailableError as a worker does, and GpuLostError."""
        assert self._actor is not None, "request_gpu comes first"
        hello: Hello = self._actor.ask("launch", self._invocation.start(), self._invocation.time_limit_s)
        place: GpuLocation = self._actor.ask("place", self._invocation.device, hello, limit_s=ANSWER_S)
        self._has_worker = True
        self._gpu = ReadyGpu(self._actor, hello, place)

    def compile(self, tasks: Sequence[Task], seed: int, actors: int) -> None:
        """Let the host compile tasks ahead; a lost GPU is handled later, when it is to measure."""
        with suppress(GpuLostError):
            self.gpu.actor.ask(
                "compile_ahead",
                tasks,
                self._invocation.start(),
                seed,
                processes=self._invocation.compile_ahead,
                actors=actors,
                facts=self.gpu.place.facts,
                time_limit_s=self._invocation.time_limit_s,
            )

    def work(self, team: Team, progress: Display) -> None:
        """Measure until nothing is left to do, on another GPU where one is lost.

        Raises WriteError where the results cannot be written.
        """
        try:
            while not team.shares.over:
                if self._gpu is None:
                    self._replace_gpu(team, progress)
                elif team.shares.wait(self.number):
                    self._measure(team, progress)
        except WriteError:
            raise
        except (UsageError, UnavailableError) as error:
            self.fault = str(error)
            progress.say(f"the run goes on without this GPU: {error}")
        finally:
            team.shares.depart(self.number)
            self._close()

    def end(self) -> None:
        """End the lane's actor at once."""
        if self._actor is not None:
            self._actor.end()

    def _replace_gpu(self, team: Team, progress: Display) -> None:
        """Wait for another GPU, as long as anything is left to do."""
        progress.say("waiting for a GPU")
        try:
            self.request_gpu()
            while not self.has_gpu(POLL_S):
                if team.shares.over:
                    return
            self.start_worker()
        except GpuLostError as lost:
            if not team.shares.over:
                raise UnavailableError(str(lost)) from lost
            return
        team.number_of(self.gpu)
        team.shares.arrive(self.number)

    def _measure(self, team: Team, progress: Display) -> None:
        """Measure jobs while there are any, or until the GPU is lost."""
        gpu = self.gpu
        sink = Stamped(team.results, team.number_of(gpu))
        runner = Runner(
            launch=self._launch,
            results=sink,
            settings=team.planned.settings,
            profile=team.planned.profile,
            progress=progress,
            missing={item.name: item.missing for item in gpu.hello.implementations if item.missing},
            time_limit_s=self._invocation.time_limit_s,
            worker=FarWorker(gpu.actor) if self._has_worker else None,
            selftests=selftests_on(team.planned.facts.kind, self._invocation),
            hard_failures=team.hard_failures,
            stages_s=self.stages_s,
            untimed=team.untimed,
        )
        self._has_worker = False
        try:
            runner.run(self._jobs(team.shares, sink))
        except GpuLostError as lost:
            gpu.actor.end()
            self._gpu = None
            if not team.shares.over:
                progress.say(f"lost on {gpu.place.host}: {lost}")
            self._hand_over(team, sink, str(lost))

    def _launch(self, process: int) -> FarWorker:
        start = replace(self._invocation.start(process), asked=False)  # the Hello of the first worker is enough
        try:
            self.gpu.actor.ask("launch", start, self._invocation.time_limit_s)
        except (UsageError, UnavailableError) as error:  # the first worker did start, so the GPU is lost
            raise GpuLostError(str(error)) from error
        return FarWorker(self.gpu.actor)

    def _jobs(self, shares: Shares, sink: Stamped) -> Generator[Job]:
        """Yield one job after the other; when the next one is taken, the last one has all its rows."""
        while (job := shares.take(self.number)) is not None:
            self._job = job
            sink.rows.clear()
            yield job
            self._job = None
            shares.finish()

    def _hand_over(self, team: Team, sink: Stamped, how: str) -> None:
        """Give the rest of the job at work to other lanes; after the second loss, write its rows as crashed."""
        job, self._job = self._job, None
        rest = next(iter(remaining([job], sink.rows)), None) if job else None
        if team.shares.lose(self.number, job, rest) or rest is None:
            return
        for impl in rest.impls:
            reason = Reason("gpu_lost_twice", {"how": how})
            sink.append(RowRecord(case=rest.case, impl=impl, status="crashed", reason=reason, process=rest.process))

    def _close(self) -> None:
        if self._gpu is not None:
            with suppress(GpuLostError):
                self.logs.append(self._gpu.actor.ask("log", limit_s=ANSWER_S))
                self._gpu.actor.ask("close", limit_s=ANSWER_S)
        self.end()
