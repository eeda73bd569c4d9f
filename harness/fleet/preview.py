"""Describes a run without measuring anything (`bench --dry-run`); published runs say about how long it will take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from harness import devices
from harness.cases.catalogue import compiled_alike
from harness.cases.drawn_shapes import parse_draw
from harness.devices import PROFILES, DeviceFacts, DeviceProfile
from harness.errors import UsageError
from harness.fleet.cluster import choose_gpus, connected
from harness.records.file import Results, load
from harness.records.published_plan import PUBLISHED
from harness.records.run_records import ImplRecord
from harness.run.invocation import Invocation
from harness.run.plan import Job, runnable
from harness.run.progress import Display, counted
from harness.run.session import Planned, inventory, plan_run

# Stages whose time a file has for all rows together.
ROW_STAGES = ("inputs", "verify", "time", "time in context", "break down")
COMPILING_PROCESSES = 12  # processes that compiled ahead in published runs, on hosts of 16 cores


def describe_plan(invocation: Invocation, display: Display) -> str:
    """The plan on each kind of GPU as lines of text; raises UsageError and UnavailableError as the run would."""
    if invocation.fleet is None:
        display.say("starting a worker")
        hello = inventory(invocation, measures=False)
        profile, _ = devices.choose(invocation.device, hello.available)
        return _lines(profile.family, None, plan_run(invocation, hello))
    with connected(invocation.fleet) as cluster:
        counts = choose_gpus(cluster.gpus(), invocation)
    display.say("starting a worker")
    hello = inventory(invocation.changed(device="cpu"), measures=False)  # this host need not have a GPU
    on = {kind: None if invocation.device == "cpu" else elsewhere(kind) for kind in counts}
    return "\n".join(_lines(kind, gpus, plan_run(invocation, hello, on[kind])) for kind, gpus in counts.items())


def elsewhere(kind: str) -> tuple[DeviceProfile, DeviceFacts]:
    """A GPU that is not here, by the name of its profile or family; without a profile its facts are unknown."""
    profile = next((profile for profile in PROFILES if kind in (profile.name, profile.family)), None)
    facts = DeviceFacts("cuda", profile.title if profile else kind, profile.architecture if profile else "")
    return profile or devices.detect(facts), facts


def _lines(kind: str, gpus: int | None, planned: Planned) -> str:
    """The plan in lines: on so many GPUs of a fleet, whose libraries are unknown here, or (None) on this device."""
    here = gpus is None
    missing = [impl.name for impl in planned.impls if here and impl.missing]
    impls = [impl for impl in planned.impls if impl.name not in missing]
    cases = list(dict.fromkeys(job.case.key for job in planned.jobs))
    draws_anew = planned.settings.draw is not None and parse_draw(planned.settings.draw)[1] is None
    where = f"this {'CPU' if planned.facts.kind == 'cpu' else 'GPU'}" if gpus is None else counted(gpus, "GPU")
    lines = [
        f"{kind}: {counted(len(planned.jobs), 'job')} on {where}; a job is a case on all "
        "implementations in one process",
        f"  {counted(len(cases), 'case')}: {'drawn when the run begins' if draws_anew else ', '.join(cases)}",
        f"  {counted(len(impls), 'implementation')}{'' if here else ', where a host has them'}: "
        f"{', '.join(impl.name for impl in impls)}",
        *([f"  {len(missing)} not installed: {', '.join(missing)}"] if missing else []),
        f"  {planned.settings.processes} process{'es' * (planned.settings.processes != 1)}",
        f"  {_time(planned, impls, gpus or 1, kind)}",
    ]
    return "\n".join(lines) + "\n"


def _time(planned: Planned, impls: Sequence[ImplRecord], gpus: int, kind: str) -> str:
    """The estimated time; an implementation that is missing, or does not handle a case, takes none."""
    if planned.facts.kind == "cpu":
        return "time: unknown, as the published runs are of GPUs"
    if not (times := published(kind)).runs:
        return "time: unknown, as there is no published run here; a checkout has them in its folder of results"
    by_name = {impl.name: impl for impl in impls}
    jobs = [runnable(job, by_name) for job in planned.jobs]
    compiled = [impl.name for impl in impls if impl.compiles_ahead]
    seconds = times.run_s([job for job in jobs if job.impls], gpus, compiled)
    quick = ", and less with --quick" if planned.settings.quick else ""
    return f"time: about {max(1, round(seconds / 60))} min by {counted(times.runs, 'published run')}{quick}"


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
        rows = [row for row in run.rows if row.role == "impl" and row.timing]
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
