"""When a run has to end: it decides which jobs are begun, so that the last one ends in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.run.plan import Job


class OutOfTimeError(Exception):
    """The deadline came before the run was done; the results file at `path` is closed and can be resumed."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


@dataclass
class Deadline:
    """The end of a run on a clock, in seconds, and about how long a job takes.

    `not_begun` has the jobs that were left out because of the time.
    """

    ends_s: float
    job_s: float
    now_s: Callable[[], float] = time.monotonic
    not_begun: list[Job] = field(default_factory=list[Job])

    @property
    def has_come(self) -> bool:
        """Whether it has come."""
        return self.now_s() >= self.ends_s

    def fitting(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """The first jobs, as many as should be done in time."""
        left_s = max(0.0, self.ends_s - self.now_s())
        return jobs if left_s >= self.job_s * len(jobs) else jobs[: int(left_s / self.job_s)]

    def jobs_in_time(self, jobs: Sequence[Job]) -> Generator[Job]:
        """Yield one job after the other while there is time for one like the longest so far; note `not_begun`."""
        longest_s = self.job_s
        for number, job in enumerate(jobs):
            begun_s = self.now_s()
            if begun_s + longest_s > self.ends_s:
                self.not_begun = list(jobs[number:])
                return
            yield job
            longest_s = max(longest_s, self.now_s() - begun_s)
