"""Describes a run and estimates its time without measuring anything (`bench --dry-run`)."""

from __future__ import annotations

from collections.abc import Sequence

from harness import devices
from harness.devices import PROFILES, DeviceFacts, DeviceProfile
from harness.fleet.cluster import connected
from harness.fleet.estimate import Durations, published
from harness.fleet.gathering import choose_gpus
from harness.records.run_records import ImplRecord
from harness.run.invocation import Invocation
from harness.run.plan import runnable
from harness.run.progress import Display, counted
from harness.run.resolve import check
from harness.run.session import Planned, inventory, plan_run
from harness.worker.messages import Hello

Device = tuple[DeviceProfile, DeviceFacts]


def describe_plan(invocation: Invocation, display: Display) -> str:
    """The plan on each kind of GPU as lines of text; raises UsageError and UnavailableError as the run would."""
    check(invocation)
    if invocation.fleet is None:
        display.say("starting a worker")
        hello = inventory(invocation)
        profile, _ = devices.choose(invocation.device, hello.available)
        return _lines(profile.family, None, plan_run(invocation, hello))
    with connected(invocation.fleet) as cluster:
        counts = choose_gpus(cluster.gpus(), invocation)
    display.say("starting a worker")
    hello = inventory(invocation.changed(device="cpu"))  # this host need not have a GPU
    return "\n".join(_lines(kind, gpus, _on(kind, invocation, hello)) for kind, gpus in counts.items())


def elsewhere(kind: str) -> Device:
    """A GPU that is not here, by the name of its profile or family; without a profile its facts are unknown."""
    profile = next((profile for profile in PROFILES if kind in (profile.name, profile.family)), None)
    facts = DeviceFacts("cuda", profile.title if profile else kind, profile.architecture if profile else "")
    return profile or devices.detect(facts), facts


def _on(kind: str, invocation: Invocation, hello: Hello) -> Planned:
    return plan_run(invocation, hello, None if invocation.device == "cpu" else elsewhere(kind))


def _lines(kind: str, gpus: int | None, planned: Planned) -> str:
    """The plan in lines: on so many GPUs of a fleet, whose libraries are unknown here, or (None) on this device."""
    here = gpus is None
    missing = [impl.name for impl in planned.impls if here and impl.missing]
    impls = [impl for impl in planned.impls if impl.name not in missing]
    cases = list(dict.fromkeys(job.case.key for job in planned.jobs))
    lines = [
        f"{kind}: {counted(len(planned.jobs), 'job')} on {_devices(gpus, planned)}; a job is a case on all "
        "implementations in one process",
        f"  {counted(len(cases), 'case')}: {', '.join(cases)}",
        f"  {counted(len(impls), 'implementation')}{'' if here else ', where a host has them'}: "
        f"{', '.join(impl.name for impl in impls)}",
        *([f"  {len(missing)} not installed: {', '.join(missing)}"] if missing else []),
        f"  {planned.settings.processes} process{'es' * (planned.settings.processes != 1)}",
        f"  {_time(planned, impls, gpus or 1, published(kind))}",
    ]
    return "\n".join(lines) + "\n"


def _devices(gpus: int | None, planned: Planned) -> str:
    if gpus is None:
        return "this CPU" if planned.facts.kind == "cpu" else "this GPU"
    return counted(gpus, "GPU")


def _time(planned: Planned, impls: Sequence[ImplRecord], gpus: int, times: Durations) -> str:
    """The estimated time; an implementation that is missing, or does not handle a case, takes none."""
    if planned.facts.kind == "cpu":
        return "time: unknown, as the published runs are of GPUs"
    if not times.runs:
        return "time: unknown, as there is no published run here; a checkout has them in its folder of results"
    by_name = {impl.name: impl for impl in impls}
    jobs = [runnable(job, by_name) for job in planned.jobs]
    compiled = [impl.name for impl in impls if impl.compiles_ahead]
    seconds = times.run_s([job for job in jobs if job.impls], gpus, compiled)
    quick = ", and less with --quick" if planned.settings.quick else ""
    return f"time: about {max(1, round(seconds / 60))} min by {counted(times.runs, 'published run')}{quick}"
