"""Estimates how long a run will take, from the times of published runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from harness.cases.catalogue import compiled_alike
from harness.errors import UsageError
from harness.records.file import Results, load
from harness.records.published_plan import PUBLISHED
from harness.records.schema import RowRecord
from harness.run.plan import Job

# Stages whose time a file has for all rows together.
ROW_STAGES = ("inputs", "verify", "time", "time in context", "break down")
COMPILING_PROCESSES = 12  # processes that compiled ahead in published runs, on hosts of 16 cores


@dataclass(frozen=True)
class Durations:
    """The seconds that published runs took: for a row, by implementation; for a process besides its rows; to compile.

    `compile_s` is the time of one process to compile a row's backward ahead; `runs` is how many runs these are of.
    """

    row_s: Mapping[str, float] = field(default_factory=dict[str, float])
    process_s: float = 0.0
    compile_s: float = 0.0
    runs: int = 0

    def job_s(self, job: Job) -> float:
        """The seconds of a job; an implementation that was never measured takes as long as the median one."""
        usual_s = median(self.row_s.values()) if self.row_s else 1.0
        return sum(self.row_s.get(impl, usual_s) for impl in job.impls)

    def run_s(self, jobs: Sequence[Job], gpus: int, compiled: Iterable[str]) -> float:
        """The seconds of a run on so many GPUs; the implementations `compiled` are compiled ahead.

        It is as long as its longest job at least.
        """
        ahead = set(compiled)
        tasks = {(compiled_alike(job.case), impl) for job in jobs for impl in ahead.intersection(job.impls)}
        jobs_s = [self.job_s(job) for job in jobs]
        processes = max(gpus, len({job.process for job in jobs}))
        measure_s = (sum(jobs_s) + processes * self.process_s) / gpus
        longest_s = max(jobs_s, default=0.0) + self.process_s
        return len(tasks) * self.compile_s / (COMPILING_PROCESSES * gpus) + max(measure_s, longest_s)


def durations(runs: Iterable[Results]) -> Durations:
    """The durations of those of these runs that recorded the times of their stages and that timed something."""
    of_impl: dict[str, list[float]] = defaultdict(list)
    process_s: list[float] = []
    compile_s: list[float] = []
    for run in runs:
        rows = _timed(run)
        if run.end is None or not run.end.stages_s.get("time") or not run.selftests or not rows:
            continue
        stages, gpus = run.end.stages_s, max(1, len(run.gpus))
        shared_s = sum(stages.get(stage, 0.0) for stage in ROW_STAGES) / len(rows)
        for row in rows:
            of_impl[row.impl].append(shared_s + (row.prepare_s or 0.0))
        # A fleet's stages are sums over its GPUs, which run in parallel.
        ahead_s = stages.get("compile ahead", 0.0)
        outside_s = run.end.wall_s - ahead_s - (sum(stages.values()) - ahead_s) / gpus
        processes = len({(row.process, row.gpu) for row in rows})
        process_s.append((stages.get("self-test", 0.0) + stages.get("start", 0.0) + outside_s * gpus) / processes)
        if tasks := _compiled(run):
            compile_s.append(ahead_s * COMPILING_PROCESSES * gpus / tasks)
    return Durations(
        row_s={impl: fmean(seconds) for impl, seconds in of_impl.items()},
        process_s=median(process_s) if process_s else 0.0,  # a run killed while it compiled is an outlier
        compile_s=fmean(compile_s) if compile_s else 0.0,
        runs=len(process_s),
    )


def _timed(run: Results) -> list[RowRecord]:
    return [row for row in run.rows if row.role == "impl" and row.timing]


def _compiled(run: Results) -> int:
    """How many backwards a run compiled ahead."""
    names = {impl.name for impl in run.run.implementations if impl.compiles_ahead}
    return len({(compiled_alike(row.case), row.impl) for row in run.rows if row.role == "impl" and row.impl in names})


def published(kind: str, folder: Path = PUBLISHED) -> Durations:
    """The durations of the published runs on this kind of GPU; if there are none, of those on any kind."""
    own = sorted((folder / kind).glob("*.jsonl*"))
    try:
        return durations(map(load, own or sorted(folder.glob("*/*.jsonl*"))))
    except UsageError as error:
        raise UsageError(f"no estimate: {error}") from error
