"""Finds out which runs of the plan are published on a device, which are missing or stale and why, and their times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from harness import devices
from harness.analysis.currency import UNFINISHED, cases_lacking, out_of_date, part_so_far
from harness.devices import DeviceFacts, DeviceProfile
from harness.errors import UnavailableError, UsageError
from harness.fleet.preview import elsewhere
from harness.publish.minutes import RunTimes, run_times
from harness.records.file import Results, load
from harness.records.published_plan import PACKED_SUFFIX, PUBLISHED, Plan, PlannedRun, file_of
from harness.records.run_records import RunRecord
from harness.run.invocation import Invocation
from harness.run.opening import RESULTS_NAME
from harness.run.plan import Job, left_to_do
from harness.run.session import Planned, library_versions, plan_run
from harness.worker.messages import Hello

# In part: current, with fewer processes or cases than planned.
State = Literal["current", "in part", "stale", "missing"]


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

    @property
    def name(self) -> str:
        """The folder of its results."""
        return self.profile.name


@dataclass(frozen=True)
class SurveyedRun:
    """A run of the plan: the state of its published file, and what was measured of it so far.

    `earlier` is the file of an unfinished run in the folder `work`, or else the published file if it is a part;
    `restart_reason` says why the unfinished run cannot be resumed. The `jobs` to do take about `seconds`.
    """

    name: str
    entry: PlannedRun
    planned: Planned
    work: Path
    state: State
    reasons: tuple[str, ...] = ()
    earlier: Path | None = None
    restart_reason: str | None = None
    jobs: tuple[Job, ...] = ()
    seconds: float = 0.0

    @property
    def resumes(self) -> bool:
        """Whether there is something measured that can be gone on with."""
        return self.earlier is not None and self.restart_reason is None


def find_place(device: str, hello: Hello) -> Place:
    """The GPU of this machine that --device names; raises UsageError if unknown, UnavailableError if not here."""
    if device.strip().lower() == "cpu":
        raise UsageError("--device cpu: a CPU's times are not published; name a GPU, such as h200, or leave it out")
    profile, facts = devices.choose(device, hello.available)
    if facts.kind == "cpu":
        raise UnavailableError(
            "torch finds no GPU on this machine, and a CPU's times are not published; "
            "`normbwd publish --dry-run` tells what is due on one that is elsewhere"
        )
    return Place(profile, facts, here=True)


def find_places(device: str, hello: Hello, published: Path = PUBLISHED) -> list[Place]:
    """The GPU that --device names, here or elsewhere; `auto` is the one here, or else every one with results.

    Raises UsageError for an unknown name, and where there are neither a GPU nor results.
    """
    try:
        return [find_place(device, hello)]
    except UnavailableError:
        name = device.strip().lower()
    folders = sorted({path.parent.name for path in published.glob(f"*/*{PACKED_SUFFIX}")})
    names = folders if name == "auto" else [name]
    if not names:
        raise UsageError("nothing is published yet; name the GPU, such as --device h200")
    return [Place(*elsewhere(name), here=False) for name in names]


@dataclass(frozen=True)
class Survey:
    """Surveys the plan for one device; `work` is the folder of unfinished runs, `published` that of all devices."""

    plan: Plan
    place: Place
    invocation: Invocation
    hello: Hello
    work: Path
    published: Path = PUBLISHED

    def all(self, names: Iterable[str]) -> list[SurveyedRun]:
        """These runs of the plan, in the order of `names`."""
        return [self.one(name) for name in names]

    def one(self, name: str) -> SurveyedRun:
        """One run of the plan."""
        entry = self.plan.runs[name]
        planned = self._planned(self.invocation_of(name, entry))
        state, reasons = self._state(name, entry, planned)
        earlier = self._earlier(name, state)
        restart_reason, jobs = self._unfinished(earlier, entry, planned)
        sanitizer = self.sanitizes(entry)
        if state == "current":
            return SurveyedRun(name, entry, planned, self.work / name, state)
        seconds = self.run_times.run_s(planned, jobs, sanitizer, self.place.gpus, self.place.here)
        return SurveyedRun(
            name, entry, planned, self.work / name, state, reasons, earlier, restart_reason, tuple(jobs), seconds
        )

    def invocation_of(self, name: str, entry: PlannedRun) -> Invocation:
        """The invocation that measures a run of the plan, in a folder of its own."""
        return self.invocation.changed(
            settings=entry.settings,
            device=self.place.name,
            sanitizer=self.sanitizes(entry),
            out=self.work / name,
            command=entry.command_line(self.place.name),
        )

    def sanitizes(self, entry: PlannedRun) -> bool:
        """Whether a run uses compute-sanitizer, which supports only NVIDIA's GPUs."""
        return entry.sanitizer and self.place.facts.architecture.startswith("sm_")

    @cached_property
    def run_times(self) -> RunTimes:
        """The times of published runs: on this device, or on all devices if it has none."""
        own = sorted((self.published / self.place.name).glob("*.jsonl*"))
        return run_times(_readable(own or sorted(self.published.glob("*/*.jsonl*"))))

    def _planned(self, invocation: Invocation) -> Planned:
        if self.place.here:
            return plan_run(invocation.changed(allow_others=True), self.hello)  # nothing is measured yet
        return plan_run(invocation, self.hello, (self.place.profile, self.place.facts))

    def _state(self, name: str, entry: PlannedRun, planned: Planned) -> tuple[State, tuple[str, ...]]:
        path = file_of(self.place.name, name, self.published)
        if not path.exists():
            return "missing", ()
        try:
            results = load(path)
        except UsageError as error:
            return "stale", (str(error),)
        reasons = (*out_of_date(results, entry.settings), *self._differences_here(results, planned))
        part = part_so_far(results, entry)
        state = "stale" if reasons else "in part" if part else "current"
        return state, tuple(filter(None, [*reasons, part]))

    def _differences_here(self, results: Results, planned: Planned) -> list[str]:
        """Why a file is stale on this machine: it lacks implementations or cases, or libraries have other versions."""
        reasons: list[str] = []
        measured = {impl.name for impl in results.run.implementations if not impl.missing}
        runnable = [impl.name for impl in planned.impls if not (self.place.here and impl.missing)]
        if lacking := [name for name in runnable if name not in measured]:
            reasons.append(f"without {', '.join(lacking)}")
        if cases := cases_lacking(results, {job.case for job in planned.jobs}):
            reasons.append(f"without {len(cases)} of the cases")
        return reasons + (self._libraries_changed(results.run, planned) if self.place.here else [])

    def _libraries_changed(self, run: RunRecord, planned: Planned) -> list[str]:
        """The libraries with another version here; a library that is not here plays no part."""
        here = library_versions(self.hello, planned.impls)
        changed = {name: version for name, version in run.libraries.items() if here.get(name, version) != version}
        return [f"{name} {version} where {here[name]} is here" for name, version in changed.items()]

    def _earlier(self, name: str, state: State) -> Path | None:
        """The file with what was measured of a run so far: here, or on another machine and published as a part."""
        path = self.work / name / RESULTS_NAME
        if path.exists():
            return path
        return file_of(self.place.name, name, self.published) if state == "in part" else None

    def _unfinished(self, path: Path | None, entry: PlannedRun, planned: Planned) -> tuple[str | None, Sequence[Job]]:
        """Why an unfinished run cannot be resumed, and the jobs to do."""
        if path is None:
            return None, planned.jobs
        try:
            earlier = load(path, torn=True)
        except UsageError as error:
            return str(error), planned.jobs
        reasons = [reason for reason in out_of_date(earlier, entry.settings) if reason != UNFINISHED]
        if self.place.here:
            reasons += self._libraries_changed(earlier.run, planned)
        if reasons:
            return "; ".join(reasons), planned.jobs
        return None, left_to_do(planned.jobs, earlier, planned.settings.timed)


def _readable(paths: Iterable[Path]) -> Iterable[Results]:
    for path in paths:
        try:
            yield load(path)
        except UsageError:
            continue  # an unreadable file is no basis of an estimate
