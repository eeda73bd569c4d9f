"""The parent: hands cases to a worker, writes each row as it comes, and outlives whatever the worker does not.

A crash, a hang or a lost device costs the implementation that was at work its row for that case; the worker is replaced
and the rest of the case is tried again, so that what is compared was interleaved.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from harness.cases import NormCase
from harness.devices import DeviceProfile
from harness.results.file import AnyRecord
from harness.results.schema import RowRecord, Status
from harness.results.settings import Settings
from harness.run.plan import Job, without_untimed
from harness.run.process import Worker, WorkerDiedError
from harness.run.resolve import for_later_process
from harness.worker.messages import Aside, Began, Done, Row, SelfTest, Try, When

QUARANTINE_AFTER = 3  # crashes or hangs, each of which costs a new worker and up to the time limit


class Records(Protocol):
    """Where records are written, such as a `harness.results.file.ResultsFile`."""

    def append(self, record: AnyRecord) -> None:
        """Keep one."""
        ...


class Progress(Protocol):
    """Who is told what goes on."""

    def say(self, text: str) -> None:
        """Something that belongs to no case."""
        ...

    def case(self, case: NormCase) -> None:
        """A case begins."""
        ...

    def step(self, impl: str | None, stage: str) -> None:
        """An implementation (None: the case) enters a stage."""
        ...

    def row(self, row: RowRecord) -> None:
        """A row is final."""
        ...

    def case_done(self) -> None:
        """A case is finished."""
        ...


@dataclass
class Runner:
    """Runs jobs; `launch` starts a worker, ready for requests, for one of the run's processes.

    `time_limit_s` bounds each silent stage. `selftests` says when each process tests the engine: the whole of it the
    first time, of which `tested` holds, and then what may drift. `stages_s` adds up where the time went, by stage.
    """

    launch: Callable[[int], Worker]
    results: Records
    settings: Settings
    profile: DeviceProfile
    progress: Progress
    missing: dict[str, str]
    time_limit_s: float
    worker: Worker | None = None
    selftests: Sequence[When] = ()
    now_s: Callable[[], float] = time.monotonic
    hard_failures: Counter[str] = field(default_factory=Counter)
    stages_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    untimed: list[RowRecord] = field(default_factory=list[RowRecord])
    tested: bool = False

    def run(self, jobs: Iterable[Job]) -> None:
        """Run every job; each implementation of each job ends in one row. Each process is a fresh worker.

        A job is not asked for before the one ahead of it is done. What one process verified and did not time, because
        it must not be timed, is left out of the later ones.
        """
        try:
            self._self_test("alone", 0)
            for process, planned in groupby(jobs, lambda job: job.process):
                self._run_process(process, planned)
        finally:
            self.close()

    def _run_process(self, process: int, planned: Iterable[Job]) -> None:
        begun = False
        for job in (left for each in planned for left in without_untimed([each], self.untimed)):
            if not begun:
                self._self_test("before", process)
                begun = True
            self.progress.case(job.case)
            self._run_case(job)
            self.progress.case_done()
            if self.settings.cross_check:
                self.close()  # another engine runs once a process
        if begun:
            self._self_test("after", process)
            self.close()

    def close(self) -> None:
        """End the worker, if there is one."""
        if self.worker is not None:
            self.worker.kill()
            self.worker = None

    def _self_test(self, when: When, process: int) -> None:
        """Test the engine, where that was asked for; one that fails to end costs the budget, never the cases."""
        if when not in self.selftests:
            return
        attempt = _Attempt()
        try:
            self.worker = self.worker or self.launch(process)
            self.worker.send(SelfTest(when, self.settings, self.profile, process, whole=not self.tested))
            self._follow(self.worker, attempt)
            self.tested = True
        except (WorkerDiedError, TimeoutError) as failure:
            self.close()
            self.progress.say(f"the self-test was not finished: {failure}")

    def _run_case(self, job: Job) -> None:
        pending = [name for name in job.impls if not self._settled_without_trying(job, name)]
        settings = self.settings if job.process == 0 else for_later_process(self.settings)
        while pending:
            attempt = _Attempt()
            try:
                self.worker = self.worker or self.launch(job.process)
                group = uuid.uuid4().hex[:8]
                self.worker.send(Try(job.case, tuple(pending), group, settings, job.process, job.studied))
                self._follow(self.worker, attempt)
                return
            except WorkerDiedError as death:
                self._bury(job, attempt, pending, "crashed", str(death))
            except TimeoutError as silence:
                self._bury(job, attempt, pending, "timeout", str(silence))
            pending = [name for name in pending if name not in attempt.settled]

    def _follow(self, worker: Worker, attempt: _Attempt) -> None:
        """Take in events until the request is done."""
        while True:
            waited_since_s = self.now_s()
            try:
                event = worker.receive(self.time_limit_s)
            finally:  # a stage that ends in a death took its time too
                self.stages_s[attempt.stage] += self.now_s() - waited_since_s
            match event:
                case None:
                    raise TimeoutError(f"no sign of life for {self.time_limit_s:g} s")
                case Began(impl=impl, stage=stage):
                    attempt.impl, attempt.stage = impl, stage
                    self.progress.step(impl, stage)
                case Row(row=row):
                    if row.role == "impl":
                        attempt.settled.add(row.impl)
                    self._append(row)
                case Aside(record=record):
                    self.results.append(record)
                case Done():
                    return
                case _:
                    raise WorkerDiedError(f"the worker spoke out of turn: {event}")

    def _bury(self, job: Job, attempt: _Attempt, pending: list[str], status: Status, how: str) -> None:
        """Replace the worker, and write the row of whoever was at work when it ended."""
        self.close()
        if attempt.impl in attempt.settled:
            self.hard_failures[attempt.impl] += 1
            return  # its row is written: it took the device with it, and the rest goes on with a new worker
        guilty = [attempt.impl] if attempt.impl in pending else [n for n in pending if n not in attempt.settled]
        for name in guilty:
            self.hard_failures[name] += len(guilty) == 1
            attempt.settled.add(name)
            self._write_off(job, name, status, f"{how} in stage {attempt.stage!r}")

    def _settled_without_trying(self, job: Job, name: str) -> bool:
        if name in self.missing:
            self._write_off(job, name, "missing", self.missing[name])
        elif self.hard_failures[name] >= QUARANTINE_AFTER:
            reason = f"not tried: in quarantine after {QUARANTINE_AFTER} crashes or hangs"
            self._write_off(job, name, "crashed", reason)
        else:
            return False
        return True

    def _write_off(self, job: Job, name: str, status: Status, reason: str) -> None:
        self._append(RowRecord(case=job.case, impl=name, status=status, reason=reason, process=job.process))

    def _append(self, row: RowRecord) -> None:
        if self.settings.timed and row.untimed:
            self.untimed.append(row)
        self.results.append(row)
        self.progress.row(row)


@dataclass
class _Attempt:
    """One go at a case: who is at work in which stage, and who has a row already."""

    impl: str | None = None
    stage: str = "start"
    settled: set[str] = field(default_factory=set)
