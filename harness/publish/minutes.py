"""Estimates how long a planned run takes, from the published runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from statistics import fmean

from harness.fleet.estimate import Durations, durations, makespan_s
from harness.records.file import Results
from harness.run.compile_ahead import Task, tasks_of
from harness.run.plan import Job, runnable
from harness.run.session import Planned

UNKNOWN_ROW_S = 0.5  # of a verification, where none is published


@dataclass(frozen=True)
class RunTimes:
    """The seconds that published runs took: `timed` runs, and the rows of verifications by the number of repeats.

    `sanitizer_s` is the time of compute-sanitizer for an implementation.
    """

    timed: Durations
    verified_row_s: dict[int, float]
    sanitizer_s: float

    def job_s(self, planned: Planned, here: bool = True) -> Callable[[Job], float]:
        """The estimated seconds of a job; an implementation that is missing `here` or lacks a variant takes none.

        A context besides cold takes as long as in published runs. Where none has any, it takes as long as cold.
        """
        tried = _tried(planned, here)
        contexts = len(planned.settings.context) - 1
        row_s = self._verified_row_s(planned.settings.repeats)

        def seconds(job: Job) -> float:
            job = tried(job)
            if not planned.settings.timed:
                return row_s * len(job.impls)
            return self.timed.of(job) + contexts * self.timed.context_s * len(job.impls)

        return seconds

    def ahead_s(self, planned: Planned, processes: int, compiled: Set[Task]) -> Callable[[Sequence[Job]], float]:
        """The estimated seconds in which so many processes compile ahead what jobs need and is not yet `compiled`."""

        def seconds(jobs: Sequence[Job]) -> float:
            tasks = set(tasks_of(jobs, planned.impls)) - compiled
            return len(tasks) * self.timed.compile_s / processes if processes else 0.0

        return seconds

    def run_s(self, planned: Planned, jobs: Sequence[Job], sanitizer: bool, gpus: int = 1, here: bool = True) -> float:
        """The estimated seconds of these jobs of a run on so many GPUs, self-tests and the like included."""
        cost_s = self.job_s(planned, here)
        jobs = [job for job in map(_tried(planned, here), jobs) if job.impls]
        compiled = [impl.name for impl in planned.impls if impl.compiles_ahead and not (here and impl.missing)]
        beyond_s = sum(map(cost_s, jobs)) - sum(map(self.timed.of, jobs))
        timed = self.timed if planned.settings.timed else replace(self.timed, process_s=0.0)  # part of verified rows
        total_s = makespan_s(jobs, gpus, timed, compiled=compiled) + beyond_s / gpus
        return total_s + (self.sanitizer_s * len(planned.impls) if sanitizer else 0.0)

    def _verified_row_s(self, repeats: int) -> float:
        known = self.verified_row_s
        return known.get(repeats) or (fmean(known.values()) if known else UNKNOWN_ROW_S)


def _tried(planned: Planned, here: bool) -> Callable[[Job], Job]:
    """The function that restricts a job to the implementations that will be run: a refusal takes no time."""
    by_name = {impl.name: impl for impl in planned.impls if not (here and impl.missing)}

    return lambda job: runnable(job, by_name)


def run_times(runs: Iterable[Results]) -> RunTimes:
    """The times of these runs, as far as their files have them."""
    runs = [run for run in runs if run.end and run.rows]
    verified: dict[int, list[float]] = {}
    sanitized: list[float] = []
    for run in runs:
        assert run.end is not None, "runs without an end record were left out"
        if run.run.settings.timed:
            continue
        stages, wall_s = run.end.stages_s, run.end.wall_s
        sanitizer_s = stages.get("sanitizer", 0.0)
        rows_s = wall_s - sanitizer_s - stages.get("compile ahead", 0.0)
        rows = [row for row in run.rows if row.status not in ("missing", "unsupported")]
        verified.setdefault(run.run.settings.repeats, []).append(rows_s / max(1, len(rows)))
        if run.sanitized:
            sanitized.append(sanitizer_s / len({record.impl for record in run.sanitized}))
    return RunTimes(
        durations(runs),
        {repeats: fmean(seconds) for repeats, seconds in verified.items()},
        fmean(sanitized) if sanitized else 0.0,
    )
