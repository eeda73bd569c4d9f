"""Decides which GPU measures which job: each has a share, and takes over jobs of others when it is done or one is lost.

Jobs are in the order of the plan, one process after the other, and a share is a contiguous part of them. So a GPU has
few processes to start, and with as many GPUs as processes no GPU measures a case twice. Neighbouring cases have the
same width, for which libraries compile.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence

from harness.cases import NormCase
from harness.run.plan import Job

MOST_TRIES = 2  # of a job whose GPU is lost


class Shares:
    """The jobs of a run by lane (one GPU); thread-safe."""

    def __init__(self, jobs: Sequence[Job], lanes: Sequence[int]) -> None:
        borders = [round(number * len(jobs) / len(lanes)) for number in range(len(lanes) + 1)]
        self._shares = {
            lane: deque(jobs[begin:end]) for lane, begin, end in zip(lanes, borders, borders[1:], strict=False)
        }
        self._ownerless: deque[Job] = deque()
        self._apart = len(lanes) >= len({job.process for job in jobs})  # so that no GPU has to measure a case twice
        self._measured: dict[int, set[NormCase]] = {lane: set() for lane in lanes}
        self._process: dict[int, int | None] = dict.fromkeys(lanes)
        self._present: set[int] = set(lanes)
        self._lost_by: dict[Job, int] = {}
        self._losses: Counter[Job] = Counter()
        self._unfinished = len(jobs)
        self._stopped = False
        self._changed = threading.Condition()  # reentrant

    def of(self, lane: int) -> list[Job]:
        """The jobs in a lane's share at this moment."""
        with self._changed:
            return list(self._shares[lane])

    def take(self, lane: int) -> Job | None:
        """The next job of a lane: of its own share, else one without a lane, else from the end of a large share."""
        with self._changed:
            if self._stopped or (choice := self._choice(lane)) is None:
                return None
            share, job = choice
            share.remove(job)
            self._process[lane] = job.process
            self._measured[lane].add(job.case)
            return job

    def finish(self) -> None:
        """Note that a job has all its rows."""
        with self._changed:
            self._unfinished -= 1
            self._changed.notify_all()

    def lose(self, lane: int, job: Job | None, rest: Job | None) -> bool:
        """Note that a lane lost its GPU during `job`, of which `rest` is still to do; False if `rest` is given up.

        The lane's share is free for all lanes. A job is given up after MOST_TRIES losses.
        """
        with self._changed:
            self.depart(lane)
            if job is None:
                return True
            self._losses[job] += 1
            if rest is None or self._losses[job] >= MOST_TRIES:
                self._unfinished -= 1
                return rest is None
            self._losses[rest] = self._losses[job]
            self._lost_by[rest] = lane
            self._ownerless.appendleft(rest)
            return True

    def arrive(self, lane: int) -> None:
        """Note that a lane has a new GPU, in place of one that was lost."""
        with self._changed:
            self._shares.setdefault(lane, deque())
            self._measured.setdefault(lane, set())
            self._present.add(lane)
            self._process[lane] = None

    def depart(self, lane: int) -> None:
        """Note that a lane has no GPU and will have none; its share is free for all lanes."""
        with self._changed:
            self._present.discard(lane)
            self._ownerless.extend(self._shares.get(lane, ()))
            self._shares[lane] = deque()
            self._changed.notify_all()

    def wait(self, lane: int) -> bool:
        """Wait until there is a job for a lane; False where none will come."""
        with self._changed:
            while not self._stopped and self._unfinished and self._choice(lane) is None:
                self._changed.wait()
            return not self._stopped and self._unfinished > 0

    @property
    def unfinished(self) -> int:
        """How many jobs do not have all their rows yet."""
        with self._changed:
            return self._unfinished

    @property
    def over(self) -> bool:
        """Whether all jobs are done, or `stop` was called."""
        with self._changed:
            return self._stopped or not self._unfinished

    def stop(self) -> None:
        """Give no more jobs to any lane."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _choice(self, lane: int) -> tuple[deque[Job], Job] | None:
        """The share to take from, and the job."""
        if share := self._shares[lane]:
            return share, share[0]
        others_present = self._present - {lane}
        free = [job for job in self._ownerless if not (others_present and self._lost_by.get(job) == lane)]
        if free:
            same = [job for job in free if job.process == self._process[lane]]
            return self._ownerless, (same or free)[0]
        for share in sorted(self._shares.values(), key=len, reverse=True):
            for job in reversed(share if len(share) > 1 else ()):  # a single job its own lane has done as soon
                if not (self._apart and job.case in self._measured[lane]):
                    return share, job
        return None
