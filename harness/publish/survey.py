"""Surveys the plan: which of its runs are current, stale or missing on a device, why, and about how long they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from harness import devices
from harness.analysis.currency import UNFINISHED, mark, out_of_date
from harness.devices import DeviceFacts, DeviceProfile
from harness.errors import UnavailableError, UsageError
from harness.fleet.cluster import choose_gpus, connected
from harness.fleet.preview import elsewhere
from harness.records.file import Results, load
from harness.records.published_plan import PACKED_SUFFIX, PUBLISHED, Plan, PlannedRun, file_of
from harness.run.invocation import Invocation
from harness.run.opening import RESULTS_NAME
from harness.run.plan import Job, left_to_do
from harness.run.session import Planned, library_versions, plan_run
from harness.worker.messages import Hello

State = Literal["current", "stale", "missing"]
UNKNOWN_JOB_S = 60.0  # where no device has a published run of the name
ASSUMED = "this machine has no such device, so every library is taken to be installed"


@dataclass(frozen=True)
class Place:
    """The device that the plan is surveyed for; `here` says that it is on this machine, so that a worker can use it.

    `kind` is what a fleet calls it.
    """

    profile: DeviceProfile
    facts: DeviceFacts
    here: bool
    gpus: int = 1
    kind: str | None = None


@dataclass(frozen=True)
class SurveyedRun:
    """A run of the plan: the state of its published file and why, and what is left of it to do.

    The `jobs` are without those that an unfinished run in the folder `work` has; one takes about `job_s`.
    """

    name: str
    planned: Planned
    work: Path
    state: State
    reasons: tuple[str, ...]
    jobs: Sequence[Job]
    job_s: float

    @property
    def seconds(self) -> float:
        """About how long the jobs take on one GPU."""
        return self.job_s * len(self.jobs)

    @property
    def due(self) -> str:
        """Its state with the reasons, and how much of it is begun, in words."""
        begun = f"begun: {len(self.jobs)} of {len(self.planned.jobs)} jobs are left"
        return "; ".join([*self.reasons, *([begun] if len(self.jobs) < len(self.planned.jobs) else [])])


def find_places(invocation: Invocation, hello: Hello, published: Path = PUBLISHED) -> list[Place]:
    """The GPU that --device names, or the fleet's; with --dry-run also one elsewhere, or all that have results.

    Raises UsageError for an unknown name, and UnavailableError where the GPU is not here.
    """
    if invocation.fleet is not None:
        return [_on_fleet(invocation, hello)]
    name = invocation.device.strip().lower()
    if name == "cpu":
        raise UsageError("--device cpu: a CPU's times are not published; name a GPU, such as h200, or leave it out")
    try:
        profile, facts = devices.choose(invocation.device, hello.available)
        if facts.kind != "cpu":
            return [Place(profile, facts, here=True)]
        raise UnavailableError(
            "torch finds no GPU on this machine, and a CPU's times are not published; "
            "`normbwd publish --dry-run` tells what is due on one that is elsewhere"
        )
    except UnavailableError:
        if not invocation.dry_run:
            raise
    folders = sorted({path.parent.name for path in published.glob(f"*/*{PACKED_SUFFIX}")})
    names = folders if name == "auto" else [name]
    if not names:
        raise UsageError("nothing is published yet; name the GPU, such as --device h200")
    return [Place(*elsewhere(name), here=False) for name in names]


def _on_fleet(invocation: Invocation, hello: Hello) -> Place:
    """The GPUs of one kind in a fleet: the kind of --device, or the only kind.

    A kind may have several devices (an H100 is SXM, PCIe or NVL). It is the one of --device, or the one that is here.
    """
    assert invocation.fleet is not None, "only called for a fleet"
    named = None if invocation.device == "auto" else invocation.device.strip().lower()
    with connected(invocation.fleet) as cluster:
        available = cluster.gpus()
    kind = next((kind for kind in available if named and elsewhere(named)[0].family == kind), named)
    counts = choose_gpus(available, invocation.changed(kinds=kind))
    if len(counts) > 1:
        raise UsageError(f"--fleet {invocation.fleet}: it has {', '.join(counts)}; name one of them with --device")
    ((kind, gpus),) = counts.items()
    here = [profile.name for profile in map(devices.detect, hello.available) if profile.family == kind]
    name = next(iter(here), kind) if named in (None, kind) else named
    return Place(*elsewhere(name), here=False, gpus=gpus, kind=kind)


@dataclass(frozen=True)
class Survey:
    """Surveys the plan for one device; `work` is the folder of unfinished runs, `published` that of all devices."""

    plan: Plan
    place: Place
    invocation: Invocation
    hello: Hello
    work: Path
    published: Path = PUBLISHED

    def one(self, name: str) -> SurveyedRun:
        """One run of the plan."""
        entry = self.plan.runs[name]
        invocation = self.invocation_of(name)
        if self.place.here:
            planned = plan_run(invocation.changed(allow_others=True), self.hello)  # nothing is measured yet
        else:
            planned = plan_run(invocation, self.hello, (self.place.profile, self.place.facts))
        state, reasons = self._state(name, entry, planned)
        jobs = self._left(name, entry, planned)
        return SurveyedRun(name, planned, self.work / name, state, reasons, jobs, self._job_s(name))

    def invocation_of(self, name: str) -> Invocation:
        """The invocation that measures a run of the plan, in a folder of its own.

        compute-sanitizer supports only NVIDIA's GPUs.
        """
        entry = self.plan.runs[name]
        return self.invocation.changed(
            settings=entry.settings,
            device=self.place.profile.name,
            sanitizer=entry.sanitizer and self.place.facts.architecture.startswith("sm_"),
            out=self.work / name,
            command=entry.command_line(self.place.profile.name),
        )

    def _state(self, name: str, entry: PlannedRun, planned: Planned) -> tuple[State, tuple[str, ...]]:
        path = file_of(self.place.profile.name, name, self.published)
        if not path.exists():
            return "missing", ()
        try:
            results = _load(path, path.stat().st_mtime_ns)
        except UsageError as error:
            return "stale", (str(error),)
        reasons = [*out_of_date(results, entry.settings), *self._libraries_changed(results, planned)]
        measured = {impl.name for impl in results.run.implementations if not impl.missing}
        runnable = [impl.name for impl in planned.impls if not (self.place.here and impl.missing)]
        if lacking := [name for name in runnable if name not in measured]:
            reasons.append(f"without {', '.join(lacking)}")
        cases = {job.case for job in planned.jobs} - {row.case for row in results.rows}
        if cases and results.finished_cases == results.run.jobs:
            reasons.append(f"without {len(cases)} of the cases")
        return ("stale" if reasons else "current"), tuple(reasons)

    def _libraries_changed(self, results: Results, planned: Planned) -> list[str]:
        """The libraries with another version on this machine; one that is not here plays no part."""
        here = library_versions(self.hello, planned.impls) if self.place.here else {}
        changed = {
            name: version for name, version in results.run.libraries.items() if here.get(name, version) != version
        }
        return [f"{name} {version} where {here[name]} is here" for name, version in changed.items()]

    def _left(self, name: str, entry: PlannedRun, planned: Planned) -> Sequence[Job]:
        """The jobs without those of an unfinished run, which has to be of today."""
        path = self.work / name / RESULTS_NAME
        try:
            earlier = load(path, torn=True) if path.exists() else None
        except UsageError:
            return planned.jobs
        if earlier is None or self._libraries_changed(earlier, planned):
            return planned.jobs
        if {*out_of_date(earlier, entry.settings)} - {UNFINISHED}:
            return planned.jobs
        return left_to_do(planned.jobs, earlier, planned.settings.timed)

    def _job_s(self, name: str) -> float:
        """About how long a job of a run takes on one GPU: by its published file, of this device or of another one."""
        own = file_of(self.place.profile.name, name, self.published)
        for path in (own, *sorted(self.published.glob(f"*/{own.name}"))):
            try:
                results = _load(path, path.stat().st_mtime_ns)
            except (OSError, UsageError):
                continue
            if results.end and results.rows:
                jobs = {(row.case, row.process) for row in results.rows}
                return results.end.wall_s * max(1, len(results.gpus)) / len(jobs)
        return UNKNOWN_JOB_S

    def lines(self, runs: Sequence[SurveyedRun]) -> str:
        """A line for each run, and without --only one for each published file that the plan does not measure."""
        counts = Counter(run.state for run in runs)
        states = ", ".join(f"{counts[state]} {state}" for state in get_args(State))
        due = [run for run in runs if run.state != "current"]
        gpus = f" on {self.place.gpus} GPUs" if self.place.gpus > 1 else ""
        total = f"; {self.minutes(due)}{gpus} for all that is due" if due else ""
        assumed = "" if self.place.here or self.invocation.fleet else f"; {ASSUMED}"
        width = max(len(run.name) for run in runs)
        texts = [f"{self.place.profile.name}: {states}{total}{assumed}"]
        for run in runs:
            minutes = f"{run.state:7}  {self.minutes([run]):>11}  {run.due}" if run in due else run.state
            texts.append(f"  {run.name:{width}}  {minutes}".rstrip())
        if self.invocation.only is None:
            kept = [(name, file_of(self.place.profile.name, name, self.published)) for name in self.plan.kept]
            texts += [f"  {name}: not measured by the plan; {_mark(path)}" for name, path in kept if path.exists()]
        return "\n".join(texts) + "\n"

    def minutes(self, runs: Iterable[SurveyedRun]) -> str:
        """About how long runs take on all GPUs, in words."""
        return f"about {max(1, round(sum(run.seconds for run in runs) / self.place.gpus / 60))} min"


@lru_cache(maxsize=100)
def _load(path: Path, _changed_ns: int) -> Results:
    return load(path)


def _mark(path: Path) -> str:
    try:
        results = load(path)
    except UsageError as error:
        return str(error)
    return mark(results, out_of_date(results, None))
