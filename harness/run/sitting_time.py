"""The time that a run may take in one sitting: which jobs are begun in it, so that the last of them ends in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.run.plan import Job


class OutOfTimeError(Exception):
    """The time of a sitting was up before the run was done; its results file at `path` is closed and can be resumed."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


@dataclass
class SittingTime:
    """A clock's reading by which all has to be done, in seconds, and about how long jobs and processes take.

    Only jobs of the first `processes` of a run are begun, where that is given. `left` has the jobs that were not begun.
    """

    ends_s: float
    cost_s: Callable[[Job], float]
    process_s: float = 0.0  # to start a process and to test the engine in it
    now_s: Callable[[], float] = time.monotonic
    processes: int | None = None
    left: list[Job] = field(default_factory=list[Job])

    @property
    def is_up(self) -> bool:
        """Whether nothing more may be begun."""
        return self.now_s() >= self.ends_s

    def fitting(self, jobs: Sequence[Job]) -> list[Job]:
        """The first of the jobs, as many as will be done in time by what they are thought to take."""
        then_s, process, fitting = self.now_s(), None, list[Job]()
        for job in self.begun_here(jobs):
            then_s += self.cost_s(job) + (self.process_s if job.process != process else 0.0)
            process = job.process
            if then_s > self.ends_s:
                break
            fitting.append(job)
        return fitting

    def begun_here(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Those of the jobs that may be begun at all, if there is time."""
        return jobs if self.processes is None else [job for job in jobs if job.process < self.processes]

    def hand_out(self, jobs: Sequence[Job]) -> Generator[Job]:
        """One job after the other, as long as the next will be done in time by the clock; the others are `left`."""
        for number, job in enumerate(jobs):
            if self.now_s() + self.process_s + self.cost_s(job) > self.ends_s:  # the process is to end in time too
                self.left = list(jobs[number:])
                return
            yield job
