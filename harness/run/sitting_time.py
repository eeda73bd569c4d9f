"""What a run may take in one sitting: it decides which jobs are begun, so that the last one ends in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.run.compile_ahead import Task
from harness.run.plan import Job


class OutOfTimeError(Exception):
    """The sitting ended before the run was done; the results file at `path` is closed and can be resumed."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


@dataclass
class SittingTime:
    """The end of a sitting on a clock, in seconds, and about how long a job and a process take.

    `ahead_s` is how long it takes to compile ahead what some jobs need. With `processes`, only jobs of so many first
    processes of the run are begun. `not_begun` has the jobs that were left out because of the time. `compiled` has what
    a run of the sitting has compiled ahead.
    """

    ends_s: float
    cost_s: Callable[[Job], float]
    process_s: float = 0.0  # to start a process and to run the self-test in it
    ahead_s: Callable[[Sequence[Job]], float] = field(default=lambda _jobs: 0.0)
    now_s: Callable[[], float] = time.monotonic
    processes: int | None = None
    not_begun: list[Job] = field(default_factory=list[Job])
    compiled: set[Task] = field(default_factory=set[Task])

    @property
    def is_up(self) -> bool:
        """Whether the sitting has ended."""
        return self.now_s() >= self.ends_s

    def fitting(self, jobs: Sequence[Job]) -> list[Job]:
        """The first jobs, as many as should be compiled and done in time by their estimated costs."""
        done_s, process, fitting = self.now_s(), None, list[Job]()
        for job in self.eligible(jobs):
            done_s += self.cost_s(job) + (self.process_s if job.process != process else 0.0)
            process = job.process
            if done_s + self.ahead_s([*fitting, job]) > self.ends_s:
                break
            fitting.append(job)
        return fitting

    def eligible(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """The jobs of the processes that this sitting may begin."""
        return jobs if self.processes is None else [job for job in jobs if job.process < self.processes]

    def jobs_in_time(self, jobs: Sequence[Job]) -> Generator[Job]:
        """Yield one job after the other while the clock says that the next will be done in time; note `not_begun`."""
        for number, job in enumerate(jobs):
            if self.now_s() + self.process_s + self.cost_s(job) > self.ends_s:  # the process must end in time too
                self.not_begun = list(jobs[number:])
                return
            yield job
