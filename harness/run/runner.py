"""The parent: sends cases to a worker, writes each row as it comes, and replaces a worker that dies.

After a crash, a hang or a lost device, the implementation that was running gets the row `crashed` or `timeout` for that
case. The others are tried again in a new worker, because ratios are formed only within interleaved blocks.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Protocol

from harness.cases import NormCase
from harness.devices.profiles import DeviceProfile
from harness.records.file import AnyRecord
from harness.records.impossible import mark_impossible
from harness.records.reasons import Reason
from harness.records.schema import ConditionsRecord, RowRecord, Status
from harness.records.settings import Settings
from harness.run.compile_ahead import CompilingAhead, task_of
from harness.run.plan import KILLED, Job, without_untimed
from harness.run.process import FROM_OUTSIDE, Worker, WorkerDiedError
from harness.run.progress import Display
from harness.run.resolve import for_later_process
from harness.worker.messages import Aside, Began, Done, Load, Row, SelfTest, Try, When

NO_CRASH: tuple[Status, ...] = ("wrong", "impossible", "unsupported", "oom")
UNTIMED_STAGES = ("asking", "inputs")
QUARANTINE_AFTER = 3  # crashes or hangs: each costs a new worker and up to the time limit


class Records(Protocol):
    """Where records are written, such as a `harness.records.file.ResultsFile`."""

    def append(self, record: AnyRecord) -> None:
        """Write one record."""
        ...


@dataclass
class Runner:
    """Runs jobs; `launch` starts a worker, ready for requests, for one of the run's processes.

    `time_limit_s` bounds each stage without an event. `selftests` says when each process runs a self-test: a full one
    first, after which `tested` is true, and then only the checks of what may drift. `stages_s` sums the time by stage.
    The `background` is paused in every stage that measures, verifies or may tune. While it compiles for the first case,
    the first worker is `loading` the libraries.
    """

    launch: Callable[[int], Worker]
    results: Records
    settings: Settings
    profile: DeviceProfile
    progress: Display
    missing: dict[str, Reason]
    time_limit_s: float
    worker: Worker | None = None
    selftests: Sequence[When] = ()
    now_s: Callable[[], float] = time.monotonic
    hard_failures: Counter[str] = field(default_factory=Counter)
    stages_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    untimed: list[RowRecord] = field(default_factory=list[RowRecord])
    tested: bool = False
    loading: bool | None = None
    background: CompilingAhead | None = None

    def run(self, jobs: Iterable[Job]) -> None:
        """Run every job, each process in a fresh worker; each implementation of each job gets one row.

        The next job is taken only when the last one is done. An implementation that one process verified and could not
        time is left out of the later processes.
        """
        try:
            self._self_test("alone", 0)
            for process, planned in groupby(jobs, lambda job: job.process):
                self._run_process(process, planned)
        finally:
            self.close()

    def _run_process(self, process: int, planned: Iterable[Job]) -> None:
        begun = False
        for job in chain.from_iterable(without_untimed([job], self.untimed) for job in planned):
            if not begun:
                self._self_test("before", process)
                begun = True
            self.progress.case(job.case)
            self._run_case(job)
            self.progress.case_done()
            if self.settings.cross_check:
                self.close()  # NVBench runs only once in a process
        if begun:
            self._self_test("after", process)
            self.close()

    def close(self) -> None:
        """End the worker, if there is one."""
        if self.worker is not None:
            self.worker.kill()
            self.worker = None

    def _self_test(self, when: When, process: int) -> None:
        """Run a self-test if `selftests` says so; where it dies the run goes on without its error budget."""
        if when not in self.selftests:
            return
        attempt = _Attempt()
        try:
            self.worker = self.worker or self.launch(process)
            self.worker.send(SelfTest(when, self.settings, self.profile, process, whole=not self.tested))
            self._receive_until_done(self.worker, attempt)
            self.tested = True
        except (WorkerDiedError, TimeoutError) as failure:
            self.close()
            self.progress.say(f"the self-test was not finished: {failure}")

    def _run_case(self, job: Job) -> None:
        pending = [name for name in job.impls if not self._skip(job, name)]
        self._wait_for_background(job.case, pending)
        settings = self.settings if job.process == 0 else for_later_process(self.settings)
        tried_again = False
        while pending:
            attempt = _Attempt()
            try:
                self.worker = self.worker or self.launch(job.process)
                if self.loading:
                    self.loading = False
                    self._receive_until_done(self.worker, attempt)
                group = uuid.uuid4().hex[:8]
                self.worker.send(Try(job.case, tuple(pending), group, settings, job.process, job.studied))
                self._receive_until_done(self.worker, attempt)
                return
            except WorkerDiedError as death:
                if death.signal in FROM_OUTSIDE and not tried_again:
                    self.close()
                    tried_again = True
                    self.progress.say(f"{death}; {job.case.key} goes on in a new one")
                else:
                    code = KILLED if death.signal in FROM_OUTSIDE else "died"
                    self._record_death(job, attempt, pending, "crashed", code, str(death))
            except TimeoutError as silence:
                self._record_death(job, attempt, pending, "timeout", "died", str(silence))
            pending = [name for name in pending if name not in attempt.finished]

    def _receive_until_done(self, worker: Worker, attempt: _Attempt) -> None:
        """Handle events until the request is done."""
        while True:
            waited_since_s = self.now_s()
            try:
                event = worker.receive(self.time_limit_s)
            finally:  # the time of a stage that kills the worker counts too
                self.stages_s[attempt.stage] += self.now_s() - waited_since_s
            match event:
                case None:
                    raise TimeoutError(f"no sign of life for {self.time_limit_s:g} s")
                case Began(impl=impl, stage=stage):
                    self._pause_or_go_on(impl, stage)
                    attempt.impl, attempt.stage = impl, stage
                    self.progress.step(impl, stage)
                case Row(row=sent):
                    row = mark_impossible(sent, self.profile.datasheet_gbps)
                    if row.role == "impl":
                        attempt.finished[row.impl] = row.status
                    self._append(row)
                case Aside(record=record):
                    self.results.append(self._without_own_processes(record))
                case Done():
                    return
                case _:
                    raise WorkerDiedError(f"the worker sent an unexpected event: {event}")

    def _wait_for_background(self, case: NormCase, impls: Sequence[str]) -> None:
        if self.background is None:
            return
        begun_s = self.now_s()
        if self.worker and self.loading is None:
            with suppress(WorkerDiedError):  # met again as its answer is awaited
                self.worker.send(Load(case, tuple(impls)))
            self.loading = True
        self.background.wait_for(task_of(case, impl) for impl in impls)
        self.stages_s["compile ahead"] += self.now_s() - begun_s

    def _pause_or_go_on(self, impl: str | None, stage: str) -> None:
        """Pause the background, except while inputs are drawn, or one prepares that it does not compile."""
        if self.background is None:
            return
        if stage in UNTIMED_STAGES or (stage == "prepare" and impl not in self.background.impls):
            self.background.go_on()
        else:
            self.background.pause()

    def _without_own_processes(self, record: AnyRecord) -> AnyRecord:
        """Compilers are paused while a case is timed: they do not count as other processes on its device."""
        if self.background is None or not isinstance(record, ConditionsRecord):
            return record
        others = max(0, record.other_processes - self.background.processes)
        return record.model_copy(update={"other_processes": others})

    def _record_death(
        self, job: Job, attempt: _Attempt, pending: list[str], status: Status, code: str, how: str
    ) -> None:
        """Close the dead worker, and write the row of the implementation that was running; of all, where none was."""
        self.close()
        if attempt.impl in attempt.finished:
            # Its row was written before the device was lost, or before the worker was given up for what it had left
            # behind; the rest goes on with a new worker.
            self.hard_failures[attempt.impl] += attempt.finished[attempt.impl] not in NO_CRASH
            return
        blamed = [attempt.impl] if attempt.impl in pending else [n for n in pending if n not in attempt.finished]
        for name in blamed:
            self.hard_failures[name] += len(blamed) == 1
            attempt.finished[name] = status
            self._write_failure(job, name, status, Reason(code, {"how": how, "stage": attempt.stage}))

    def _skip(self, job: Job, name: str) -> bool:
        """Write the row of an implementation that is missing or in quarantine; False where it has to be tried."""
        if name in self.missing:
            self._write_failure(job, name, "missing", self.missing[name])
        elif self.hard_failures[name] >= QUARANTINE_AFTER:
            self._write_failure(job, name, "crashed", Reason("in_quarantine", {"after": QUARANTINE_AFTER}))
        else:
            return False
        return True

    def _write_failure(self, job: Job, name: str, status: Status, reason: Reason) -> None:
        self._append(RowRecord(case=job.case, impl=name, status=status, reason=reason, process=job.process))

    def _append(self, row: RowRecord) -> None:
        if self.settings.timed and row.untimed:
            self.untimed.append(row)
        self.results.append(row)
        self.progress.row(row)


@dataclass
class _Attempt:
    """One try of a case: the implementation and stage that are running, and the status of those that have a row."""

    impl: str | None = None
    stage: str = "start"
    finished: dict[str, Status] = field(default_factory=dict)
