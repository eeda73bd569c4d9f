"""Describes a run without measuring anything (`bench --dry-run`); published runs say about how long it will take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.cases.drawn_shapes import parse_draw
from harness.devices import profiles
from harness.devices.facts import DeviceFacts
from harness.errors import UsageError
from harness.fleet.cluster import choose_gpus, connected
from harness.records.file import Results, load
from harness.records.published_plan import PUBLISHED
from harness.records.run_records import ImplRecord
from harness.run.invocation import Invocation
from harness.run.plan import runnable
from harness.run.progress import Display, counted
from harness.run.session import Planned, inventory, plan_run


def describe_plan(invocation: Invocation, display: Display) -> str:
    """The plan as lines of text; raises UsageError and UnavailableError as the run would."""
    if invocation.fleet is None:
        display.say("starting a worker")
        hello = inventory(invocation, measures=False)
        profile, _ = profiles.choose(invocation.device, hello.available)
        return _lines(profile.family, None, plan_run(invocation, hello))
    with connected(invocation.fleet) as cluster:
        kind, gpus = choose_gpus(cluster.gpus(), invocation)
    display.say("starting a worker")
    hello = inventory(invocation.changed(device="cpu"), measures=False)  # this host need not have a GPU
    on = None if invocation.device == "cpu" else elsewhere(kind)
    return _lines(kind, gpus, plan_run(invocation, hello, on))


def elsewhere(kind: str) -> tuple[profiles.DeviceProfile, DeviceFacts]:
    """A GPU that is not here, by the name of its profile or family; without a profile its facts are unknown."""
    profile = next((profile for profile in profiles.PROFILES if kind in (profile.name, profile.family)), None)
    facts = DeviceFacts("cuda", profile.title if profile else kind, profile.architecture if profile else "")
    return profile or profiles.detect(facts), facts


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
    runs = published(kind, planned.settings.processes > 1)
    if (row_s := seconds_of_a_row(*runs)) is None:
        return "time: unknown, as there is no published run here; a checkout has them in its folder of results"
    by_name = {impl.name: impl for impl in impls}
    seconds = sum(len(runnable(job, by_name).impls) for job in planned.jobs) * row_s / gpus
    quick = ", and less with --quick" if planned.settings.quick else ""
    return f"time: about {max(1, round(seconds / 60))} min by {counted(len(runs), 'published run')}{quick}"


def seconds_of_a_row(*runs: Results) -> float | None:
    """What a row of an implementation took on one GPU, with all that is around it; None where no run has both."""
    rows = sum(row.role == "impl" for run in runs for row in run.rows)
    seconds = sum(run.end.wall_s * max(1, len(run.gpus)) for run in runs if run.end)
    return seconds / rows if seconds and rows else None


def published(kind: str, several: bool, folder: Path = PUBLISHED) -> list[Results]:
    """The timed runs published of this kind of GPU, or if there are none of any, in `several` processes or in one.

    The later processes find all that the first one has compiled. Where none had so many, these are all timed runs.
    """
    paths = sorted((folder / kind).glob("*.jsonl*")) or sorted(folder.glob("*/*.jsonl*"))
    try:
        runs = [run for run in map(load, paths) if run.run.settings.timed]
    except UsageError as error:
        raise UsageError(f"no estimate: {error}") from error
    return [run for run in runs if (run.run.settings.processes > 1) == several] or runs
