"""What a run would do and about how long it would take, without doing it (`bench --dry-run`)."""

from __future__ import annotations

from harness import devices
from harness.devices import PROFILES, DeviceFacts, DeviceProfile
from harness.fleet.cluster import connected
from harness.fleet.estimate import Durations, makespan_s, published
from harness.fleet.gathering import chosen
from harness.run.invocation import Invocation
from harness.run.progress import Display
from harness.run.resolve import check
from harness.run.session import Planned, inventory, plan_run
from harness.worker.messages import Hello

Found = tuple[DeviceProfile, DeviceFacts]


def describe_plan(invocation: Invocation, display: Display) -> str:
    """The plan on each kind of GPU as lines of text; raises UsageError and UnavailableError as the run would."""
    check(invocation)
    if invocation.fleet is None:
        display.say("starting a worker")
        hello = inventory(invocation)
        profile, _ = devices.choose(invocation.device, hello.available)
        return _lines(profile.family, 1, plan_run(invocation, hello))
    with connected(invocation.fleet) as cluster:
        counts = chosen(cluster.gpus(), invocation)
    display.say("starting a worker")
    hello = inventory(invocation.changed(device="cpu"))  # this host need not have a GPU
    return "\n".join(_lines(kind, gpus, _on(kind, invocation, hello)) for kind, gpus in counts.items())


def elsewhere(kind: str) -> Found:
    """A GPU that is not here, by the name of its profile or family; of one without a profile nothing is known."""
    profile = next((profile for profile in PROFILES if kind in (profile.name, profile.family)), None)
    facts = DeviceFacts("cuda", profile.title if profile else kind, profile.architecture if profile else "")
    return profile or devices.detect(facts), facts


def _on(kind: str, invocation: Invocation, hello: Hello) -> Planned:
    return plan_run(invocation, hello, None if invocation.device == "cpu" else elsewhere(kind))


def _lines(kind: str, gpus: int, planned: Planned) -> str:
    took = published(kind)
    cases = list(dict.fromkeys(job.case.key for job in planned.jobs))
    impls = [impl.name for impl in planned.impls]
    lines = [
        f"{kind}: {len(planned.jobs)} jobs on {gpus} GPU{'s' * (gpus != 1)}; a job is a case on all implementations in "
        f"one process",
        f"  {len(cases)} cases: {', '.join(cases)}",
        f"  {len(impls)} implementations: {', '.join(impls)}",
        f"  {planned.settings.processes} process{'es' * (planned.settings.processes != 1)}",
        f"  {_time(planned, gpus, took)}",
    ]
    return "\n".join(lines) + "\n"


def _time(planned: Planned, gpus: int, took: Durations) -> str:
    if not took.runs:
        return "time: unknown, as there is no published run here; a checkout has them in its folder of results"
    compiled = [impl.name for impl in planned.impls if impl.compiles_ahead]
    seconds = makespan_s(planned.jobs, gpus, took, compiled=compiled)
    quick = ", and less with --quick" if planned.settings.quick else ""
    return f"time: about {max(1, round(seconds / 60))} min by {took.runs} published runs{quick}"
