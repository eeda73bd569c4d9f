"""About how long a planned run takes, by the runs that are published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from harness.fleet.estimate import Durations, durations, makespan_s
from harness.results.contexts import parse_contexts
from harness.results.file import Results
from harness.run.plan import Job, runnable
from harness.run.session import Planned

UNKNOWN_ROW_S = 0.5  # of a verification, where none is published


@dataclass(frozen=True)
class Took:
    """Seconds that published runs took: `timed` ones; of a verification its rows, by how often they were run again.

    `sanitizer_s` is what compute-sanitizer took for an implementation.
    """

    timed: Durations
    verified_row_s: dict[int, float]
    sanitizer_s: float

    def job_s(self, planned: Planned, here: bool = True) -> Callable[[Job], float]:
        """How long a job of this run takes; what is missing `here` and what lacks a variant take none.

        Assumed: each context besides cold takes as long as cold takes to time.
        """
        tried = _tried(planned, here)
        contexts = len(parse_contexts(planned.settings.context)) - 1
        row_s = self._verified_row_s(planned.settings.repeats)

        def seconds(job: Job) -> float:
            job = tried(job)
            if not planned.settings.timed:
                return row_s * len(job.impls)
            return self.timed.of(job) + contexts * self.timed.time_s * len(job.impls)

        return seconds

    def run_s(self, planned: Planned, jobs: Sequence[Job], sanitizer: bool, gpus: int = 1, here: bool = True) -> float:
        """How long these jobs of a run take on so many GPUs, with all that it does besides."""
        cost_s = self.job_s(planned, here)
        jobs = [job for job in map(_tried(planned, here), jobs) if job.impls]
        compiled = [impl.name for impl in planned.impls if impl.compiles_ahead and not (here and impl.missing)]
        beyond_s = sum(map(cost_s, jobs)) - sum(map(self.timed.of, jobs))
        timed = self.timed if planned.settings.timed else replace(self.timed, process_s=0.0)  # a verified row has it
        total_s = makespan_s(jobs, gpus, timed, compiled=compiled) + beyond_s / gpus
        return total_s + (self.sanitizer_s * len(planned.impls) if sanitizer else 0.0)

    def _verified_row_s(self, repeats: int) -> float:
        known = self.verified_row_s
        return known.get(repeats) or (fmean(known.values()) if known else UNKNOWN_ROW_S)


def _tried(planned: Planned, here: bool) -> Callable[[Job], Job]:
    """A job with those of its implementations that will be run: a refusal takes no time."""
    by_name = {impl.name: impl for impl in planned.impls if not (here and impl.missing)}

    return lambda job: runnable(job, by_name)


def took(runs: Iterable[Results]) -> Took:
    """What these runs took, as far as they say so."""
    runs = [run for run in runs if run.end and run.rows]
    verified: dict[int, list[float]] = {}
    sanitized: list[float] = []
    for run in runs:
        assert run.end is not None, "they have one"
        if run.run.settings.timed:
            continue
        stages, wall_s = run.end.stages_s, run.end.wall_s
        sanitizer_s = stages.get("sanitizer", 0.0)
        rows_s = wall_s - sanitizer_s - stages.get("compile ahead", 0.0)
        rows = [row for row in run.rows if row.status not in ("missing", "unsupported")]
        verified.setdefault(run.run.settings.repeats, []).append(rows_s / max(1, len(rows)))
        if run.sanitized:
            sanitized.append(sanitizer_s / len({record.impl for record in run.sanitized}))
    return Took(
        durations(runs),
        {repeats: fmean(seconds) for repeats, seconds in verified.items()},
        fmean(sanitized) if sanitized else 0.0,
    )
