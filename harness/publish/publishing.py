"""Measures the due runs of the plan by `bench --resume`, the most important first, and packs what is finished."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from harness import devices
from harness.analysis.currency import UNFINISHED, mark, out_of_date
from harness.devices import DeviceFacts, DeviceProfile
from harness.errors import UnavailableError, UsageError, name_hint
from harness.fleet import spread
from harness.fleet.cluster import choose_gpus, connected
from harness.fleet.preview import elsewhere
from harness.publish.packing import pack
from harness.records.file import Results, load
from harness.records.published_plan import PACKED_SUFFIX, PLAN, PUBLISHED, Plan, file_of, read_plan
from harness.records.schema import RANKED
from harness.run import session
from harness.run.deadline import Deadline, OutOfTimeError
from harness.run.invocation import Invocation
from harness.run.opening import RESULTS_NAME, RUNS, InUseError, claimed
from harness.run.plan import Job, left_to_do
from harness.run.progress import Display, counted
from harness.run.resolve import check
from harness.run.session import Planned, library_versions, plan_run
from harness.sanitizer import check as sanitizer
from harness.worker.messages import Hello

State = Literal["current", "stale", "missing"]
UNKNOWN_JOB_S = 60.0  # where no device has a published run of the name
ASSUMED = "this machine has no such device, so every library is taken to be installed"


@dataclass(frozen=True)
class Place:
    """The device that is surveyed; `here` says that a worker can use it, and `kind` is what a fleet calls it."""

    profile: DeviceProfile
    facts: DeviceFacts
    here: bool
    gpus: int = 1
    kind: str | None = None


@dataclass(frozen=True)
class SurveyedRun:
    """A run of the plan: the state of its published file and why, and the jobs that an unfinished run has left.

    A job takes about `job_s`.
    """

    name: str
    planned: Planned
    state: State
    reasons: tuple[str, ...]
    jobs: Sequence[Job]
    job_s: float

    @property
    def due(self) -> str:
        """The reasons of its state, and how much of it is begun, in words."""
        begun = f"begun: {len(self.jobs)} of {len(self.planned.jobs)} jobs are left"
        return "; ".join([*self.reasons, *([begun] if len(self.jobs) < len(self.planned.jobs) else [])])


@dataclass
class PublishOutcome:
    """The names of the runs that were published, unfinished or `failed`, in which no implementation passed."""

    published: list[str] = field(default_factory=list[str])
    unfinished: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])


def survey_plan(
    invocation: Invocation, display: Display, plan_file: Path = PLAN, published: Path = PUBLISHED
) -> list[tuple[Survey, list[SurveyedRun]]]:
    """Survey the runs of --only for the GPU that is to measure them; on a fleet, for one kind of GPU.

    With `dry_run`, the GPUs may be elsewhere, and there may be several. Raises UsageError and UnavailableError.
    """
    if invocation.minutes is not None and not 0 < invocation.minutes < math.inf:
        raise UsageError(f"--minutes {invocation.minutes:g}: must be positive")
    usual_s = Invocation.model_fields["time_limit_s"].default
    if invocation.time_limit_s < usual_s:
        raise UsageError(
            f"--time-limit {invocation.time_limit_s:g}: a timeout is published after {usual_s:g} s at least, as slow "
            "compilers have in bench; leave it out or give more"
        )
    check(invocation)
    plan = read_plan(plan_file)
    names = _matching(plan, invocation.only)
    display.say("starting a worker to see what is here")
    hello = session.inventory(invocation.changed(device="auto"))
    surveys: list[tuple[Survey, list[SurveyedRun]]] = []
    for place in [_on_fleet(invocation, hello)] if invocation.fleet else _places(invocation, hello, published):
        work = invocation.out or RUNS / f"publish-{place.profile.name}"
        survey = Survey(plan, place, invocation.changed(kinds=place.kind), hello, work, published)
        surveys.append((survey, [survey.one(name) for name in names]))
    return surveys


def _matching(plan: Plan, only: str | None) -> list[str]:
    """The runs of the plan that match --only, in its order; raises UsageError for a pattern that matches none."""
    patterns = [pattern.strip() for pattern in (only if only is not None else "*").split(",")]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in plan.runs):
            hint = name_hint(pattern, plan.runs)
            raise UsageError(f"--only {pattern or '(empty)'}: the plan has no such run; {hint}")
    return [name for name in plan.runs if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _places(invocation: Invocation, hello: Hello, published: Path) -> list[Place]:
    """The GPU that --device names; with --dry-run also one elsewhere, or all that have results."""
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
    if not (names := folders if name == "auto" else [name]):
        raise UsageError("nothing is published yet; name the GPU, such as --device h200")
    return [Place(*elsewhere(name), here=False) for name in names]


def _on_fleet(invocation: Invocation, hello: Hello) -> Place:
    """The GPUs of one kind in a fleet: the kind of --device, or the only kind.

    A kind may have several devices (an H100 is SXM, PCIe or NVL). It is the one of --device, or the one that is here.
    """
    named = None if invocation.device == "auto" else invocation.device.strip().lower()
    with connected(str(invocation.fleet)) as cluster:
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
    published: Path

    def one(self, name: str) -> SurveyedRun:
        """One run of the plan."""
        invocation = self.invocation_of(name).changed(allow_others=True)  # nothing is measured yet
        there = None if self.place.here else (self.place.profile, self.place.facts)
        planned = plan_run(invocation, self.hello, there)
        state, reasons = self._state(name, planned)
        return SurveyedRun(name, planned, state, reasons, self._left(name, planned), self._job_s(name))

    def invocation_of(self, name: str) -> Invocation:
        """The invocation that measures a run; compute-sanitizer supports only NVIDIA's GPUs."""
        entry = self.plan.runs[name]
        return self.invocation.changed(
            settings=entry.settings,
            device=self.place.profile.name,
            sanitizer=entry.sanitizer and self.place.facts.architecture.startswith("sm_"),
            out=self.work / name,
            command=entry.command_line(self.place.profile.name),
        )

    def file_of(self, name: str) -> Path:
        """Where a run or a kept file is published."""
        return file_of(self.place.profile.name, name, self.published)

    def _state(self, name: str, planned: Planned) -> tuple[State, tuple[str, ...]]:
        if not (path := self.file_of(name)).exists():
            return "missing", ()
        try:
            results = _load(path, path.stat().st_mtime_ns)
        except UsageError as error:
            return "stale", (str(error),)
        reasons = [*out_of_date(results, self.plan.runs[name].settings), *self._libraries_changed(results, planned)]
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

    def _left(self, name: str, planned: Planned) -> Sequence[Job]:
        """The jobs without those of an unfinished run, which has to be of today."""
        try:
            earlier = load(self.work / name / RESULTS_NAME, torn=True)
        except UsageError:
            return planned.jobs
        outdated = {*out_of_date(earlier, self.plan.runs[name].settings)} - {UNFINISHED}
        if outdated or self._libraries_changed(earlier, planned):
            return planned.jobs
        return left_to_do(planned.jobs, earlier, planned.settings.timed)

    def _job_s(self, name: str) -> float:
        """About how long a job of a run takes on one GPU: by its published file, of this device or of another one."""
        own = self.file_of(name)
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
            kept = [(name, self.file_of(name)) for name in self.plan.kept]
            texts += [f"  {name}: not measured by the plan; {_mark(path)}" for name, path in kept if path.exists()]
        return "\n".join(texts) + "\n"

    def minutes(self, runs: Iterable[SurveyedRun]) -> str:
        """About how long runs take on all GPUs, in words."""
        seconds = sum(run.job_s * len(run.jobs) for run in runs)
        return f"about {max(1, round(seconds / self.place.gpus / 60))} min"

    def hindrance(self, run: SurveyedRun) -> str | None:
        """Why a run cannot be measured here at all, however much time there is; or None."""
        if self.invocation.fleet is not None and not run.planned.settings.timed:
            return "a fleet verifies nothing; publish it without --fleet"
        try:
            if self.invocation_of(run.name).sanitizer:
                sanitizer.find()
        except UnavailableError as error:
            return str(error)
        return None

    def least_s(self, run: SurveyedRun) -> float:
        """About how long a run's next job takes; of all its jobs on a fleet, where a run is not split over calls."""
        if self.hindrance(run):
            return math.inf
        on_fleet = self.invocation.fleet is not None
        return run.job_s * len(run.jobs) / self.place.gpus if on_fleet else run.job_s * bool(run.jobs)


@lru_cache(maxsize=100)
def _load(path: Path, _changed_ns: int) -> Results:
    return load(path)


def _mark(path: Path) -> str:
    try:
        results = load(path)
    except UsageError as error:
        return str(error)
    return mark(results, out_of_date(results, None))


def publish(
    survey: Survey,
    runs: Sequence[SurveyedRun],
    display: Display,
    begun_s: float | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> PublishOutcome:
    """Measure the runs that are not current, most important first, and publish each as soon as it is finished.

    The minutes count from `begun_s` on the clock, by default from now. Raises UsageError where they are
    too few to begin any run, and what `bench` raises; after an InterruptedRun the same call resumes.
    """
    minutes = survey.invocation.minutes
    ends_s = (now_s() if begun_s is None else begun_s) + (math.inf if minutes is None else 60 * minutes)
    due = [run for run in runs if run.state != "current"]
    shortest_s = min(map(survey.least_s, due), default=0.0)
    if shortest_s < math.inf and now_s() + shortest_s > ends_s:  # what cannot be measured here is reported later
        raise UsageError(
            f"--minutes {minutes:g}: nothing that is due can be begun in less than about {shortest_s / 60:.1f} minutes"
        )
    outcome, publisher = PublishOutcome(), _Publisher(survey, display, ends_s, now_s)
    for number, run in enumerate(due, start=1):
        left = "" if ends_s == math.inf else f", and {max(0.0, ends_s - now_s()) / 60:.0f} min are left"
        state = f"{run.state} ({run.due})" if run.due else run.state
        display.say(f"{run.name} ({number} of {len(due)}): {state}; {survey.minutes([run])}{left}")
        try:
            with claimed(survey.work / f"{run.name}.lock"):
                now = survey.one(run.name)
                if now.state == "current":
                    display.say(f"{run.name}: another process has published it")
                else:
                    publisher.measure(now, outcome)
        except InUseError:
            display.say(f"{run.name}: another process measures it")
    return outcome


@dataclass(frozen=True)
class _Publisher:
    """Measures runs until `ends_s` on a clock."""

    survey: Survey
    display: Display
    ends_s: float
    now_s: Callable[[], float]

    def measure(self, run: SurveyedRun, outcome: PublishOutcome) -> None:
        """Begin a run or go on with it, publish it if it is finished, and note its outcome."""
        path, why_not = self._finish(run)
        if path is None:
            self.display.say(f"{run.name}: {why_not}")
            outcome.unfinished.append(run.name)
        elif not _any_passed(path):
            self.display.say(f"{run.name}: nothing in it passed, so that it is not published: {path}")
            outcome.failed.append(run.name)
        else:
            pack(path, target := self.survey.file_of(run.name))
            self.display.say(f"published: {target}")
            _set_aside(path.parent, "published")
            outcome.published.append(run.name)

    def _finish(self, run: SurveyedRun) -> tuple[Path | None, str]:
        """The file of a run if it is finished, or why it is not.

        Cases of which too many blocks were void, or which have no self-test, are measured a second time.
        """
        if why_not := self.survey.hindrance(run):
            return None, f"not begun; {why_not}"
        again = ""
        for _ in range(2):
            if self.now_s() + self.survey.least_s(run) > self.ends_s:
                break
            try:
                path = self._bench(run)
            except OutOfTimeError:
                break
            run = self.survey.one(run.name)
            if not run.jobs or not _any_passed(path):
                return path, ""
            again = f"{counted(len(run.jobs), 'case')} left, for too many void blocks or a self-test that died"
            self.display.say(f"{run.name}: {again}")
        begun = (self.survey.work / run.name / RESULTS_NAME).exists()
        return None, again or f"{'kept as far as it came' if begun else 'not begun'}; no time is left for it"

    def _bench(self, run: SurveyedRun) -> Path:
        """`bench --resume`; what an earlier call left is set aside where it cannot be gone on with."""
        work, invocation = self.survey.work / run.name, self.survey.invocation_of(run.name)

        def bench(resume: bool) -> Path:
            asked = invocation.changed(resume=resume)
            if invocation.fleet is not None:
                (path,) = spread.bench(asked, self.display)
                return path
            return session.bench(asked, self.display, Deadline(self.ends_s, run.job_s, self.now_s), self.survey.hello)

        if (work / RESULTS_NAME).exists():
            try:
                return bench(resume=True)
            except InUseError:
                raise
            except UsageError as error:
                self.display.say(f"{run.name}: what an earlier call left is set aside: {error}")
            _set_aside(work, "other")
        return bench(resume=False)


def _any_passed(path: Path) -> bool:
    return any(row.status in RANKED for row in load(path).rows)


def _set_aside(folder: Path, why: str) -> None:
    """Rename a folder to make room for a new run; nothing that was measured is deleted."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{why}-{number}")).exists():
        number += 1
    folder.rename(aside)
