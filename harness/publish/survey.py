"""What of the plan is published on a device, what is missing or stale and why, and about how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from harness import devices
from harness.devices import DeviceFacts, DeviceProfile
from harness.errors import UnavailableError, UsageError
from harness.fleet.preview import elsewhere
from harness.publish.minutes import Took, took
from harness.results.file import Results, load
from harness.results.published.planned import PACKED_SUFFIX, PUBLISHED, Plan, PlannedRun, file_of
from harness.results.published.staleness import UNFINISHED, stale_because
from harness.results.run_records import RunRecord
from harness.run.invocation import Invocation
from harness.run.opening import RESULTS_NAME
from harness.run.plan import Job, remaining, without_untimed
from harness.run.session import Planned, library_versions, plan_run
from harness.worker.messages import Hello

State = Literal["current", "stale", "missing"]


@dataclass(frozen=True)
class Place:
    """The device that the plan is looked at for: where its results are, and whether it is `here` and can be asked."""

    profile: DeviceProfile
    facts: DeviceFacts
    here: bool
    gpus: int = 1

    @property
    def name(self) -> str:
        """The folder of its results."""
        return self.profile.name


@dataclass(frozen=True)
class Surveyed:
    """A planned run: what is published of it, and what a sitting before this one has left in `work`.

    `begun_again` says why what is left there cannot be gone on with; `left` are the jobs to do, in `seconds`.
    """

    name: str
    run: PlannedRun
    planned: Planned
    work: Path
    state: State
    reasons: tuple[str, ...] = ()
    begun_again: str | None = None
    left: tuple[Job, ...] = ()
    seconds: float = 0.0

    @property
    def resumes(self) -> bool:
        """Whether there is an unfinished run to go on with."""
        return self.begun_again is None and (self.work / RESULTS_NAME).exists()


def find_place(asked: str, hello: Hello) -> Place:
    """The GPU here that is asked for; raises UsageError for one unknown, UnavailableError for one that is elsewhere."""
    profile, facts = devices.choose(asked, hello.available)
    if facts.kind == "cpu":
        raise UnavailableError(
            "torch finds no GPU on this machine, and a CPU's times are not published; "
            "`normbwd publish --dry-run` tells what is due on one that is elsewhere"
        )
    return Place(profile, facts, here=True)


def find_places(asked: str, hello: Hello, published: Path = PUBLISHED) -> list[Place]:
    """The GPU that is asked for, here or elsewhere; `auto` is the one here, or else each of which there are results.

    Raises UsageError for one that nobody knows, and where there is none.
    """
    try:
        return [find_place(asked, hello)]
    except UnavailableError:
        name = asked.strip().lower()
    folders = sorted({path.parent.name for path in published.glob(f"*/*{PACKED_SUFFIX}")})
    names = folders if name in ("auto", "cpu") else [name]
    if not names:
        raise UsageError("nothing is published yet; name the GPU, such as --device h200")
    return [Place(*elsewhere(name), here=False) for name in names]


@dataclass(frozen=True)
class Survey:
    """Looks at the plan for one device; `work` is the folder of unfinished runs, `published` that of all devices."""

    plan: Plan
    place: Place
    invocation: Invocation
    hello: Hello
    work: Path
    published: Path = PUBLISHED

    def all(self, names: Iterable[str]) -> list[Surveyed]:
        """These runs of the plan, in its order."""
        return [self.one(name) for name in names]

    def one(self, name: str) -> Surveyed:
        """One run of the plan."""
        run = self.plan.runs[name]
        planned = self._planned(self.asked(name, run))
        state, reasons = self._state(name, run, planned)
        begun_again, jobs = self._left(name, run, planned)
        sanitizer = self.sanitizes(run)
        if state == "current":
            return Surveyed(name, run, planned, self.work / name, state)
        seconds = self.took.run_s(planned, jobs, sanitizer, self.place.gpus, self.place.here)
        return Surveyed(name, run, planned, self.work / name, state, reasons, begun_again, tuple(jobs), seconds)

    def asked(self, name: str, run: PlannedRun) -> Invocation:
        """The invocation that measures a run of the plan, in a folder of its own."""
        return self.invocation.changed(
            settings=run.settings,
            device=self.place.name,
            sanitizer=self.sanitizes(run),
            out=self.work / name,
            command=run.command_line(self.place.name),
        )

    def sanitizes(self, run: PlannedRun) -> bool:
        """Whether a run is made under compute-sanitizer, which knows NVIDIA's GPUs alone."""
        return run.sanitizer and self.place.facts.architecture.startswith("sm_")

    @cached_property
    def took(self) -> Took:
        """How long published runs took: on this device, or where there are none on any."""
        own = sorted((self.published / self.place.name).glob("*.jsonl*"))
        return took(_readable(own or sorted(self.published.glob("*/*.jsonl*"))))

    def _planned(self, asked: Invocation) -> Planned:
        if self.place.here:
            return plan_run(asked.changed(allow_others=True), self.hello)  # nothing is measured yet
        return plan_run(asked, self.hello, (self.place.profile, self.place.facts))

    def _state(self, name: str, run: PlannedRun, planned: Planned) -> tuple[State, tuple[str, ...]]:
        path = file_of(self.place.name, name, self.published)
        if not path.exists():
            return "missing", ()
        try:
            results = load(path)
        except UsageError as error:
            return "stale", (str(error),)
        reasons = (*stale_because(results, run.settings), *self._otherwise_here(results, planned))
        return ("stale", reasons) if reasons else ("current", ())

    def _otherwise_here(self, results: Results, planned: Planned) -> list[str]:
        """What only a machine can say that knows all implementations: those that the file lacks, cases, libraries."""
        reasons: list[str] = []
        measured = {impl.name for impl in results.run.implementations if not impl.missing}
        able = [impl.name for impl in planned.impls if not (self.place.here and impl.missing)]
        if lacking := [name for name in able if name not in measured]:
            reasons.append(f"without {', '.join(lacking)}")
        cases = {job.case for job in planned.jobs} - {row.case for row in results.rows}
        if cases:
            reasons.append(f"without {len(cases)} of the cases")
        return reasons + (self._libraries_changed(results.run, planned) if self.place.here else [])

    def _libraries_changed(self, run: RunRecord, planned: Planned) -> list[str]:
        """The libraries that are of other versions here; one that is not here would not be measured either."""
        here = library_versions(self.hello, planned.impls)
        changed = {name: was for name, was in run.libraries.items() if here.get(name, was) != was}
        return [f"{name} {was} where {here[name]} is here" for name, was in changed.items()]

    def _left(self, name: str, run: PlannedRun, planned: Planned) -> tuple[str | None, Sequence[Job]]:
        """Why an unfinished run cannot be gone on with, and the jobs that are to be done."""
        path = self.work / name / RESULTS_NAME
        if not path.exists():
            return None, planned.jobs
        try:
            earlier = load(path, torn=True)
        except UsageError as error:
            return str(error), planned.jobs
        others = [reason for reason in stale_because(earlier, run.settings) if reason != UNFINISHED]
        if self.place.here:
            others += self._libraries_changed(earlier.run, planned)
        if others:
            return "; ".join(others), planned.jobs
        return None, remaining(self._to_time(planned, earlier), earlier.rows)

    @staticmethod
    def _to_time(planned: Planned, earlier: Results) -> Sequence[Job]:
        return without_untimed(planned.jobs, earlier.rows) if planned.settings.timed else planned.jobs


def _readable(paths: Iterable[Path]) -> Iterable[Results]:
    for path in paths:
        try:
            yield load(path)
        except UsageError:
            continue  # it counts for no estimate, and is stale
