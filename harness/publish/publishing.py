"""Measures the due runs of the plan by `bench --resume`, the most important first, and packs what is finished."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from harness.analysis.currency import UNFINISHED, out_of_date
from harness.devices import profiles
from harness.devices.facts import DeviceFacts
from harness.errors import UnavailableError, UsageError, name_hint
from harness.fleet import spread
from harness.fleet.cluster import choose_gpus, connected
from harness.fleet.preview import elsewhere, seconds_of_a_row
from harness.publish.packing import pack
from harness.records.file import RESULTS_NAME, Results, load
from harness.records.published_plan import PACKED_SUFFIX, PLAN, PUBLISHED, Plan, file_of, read_plan
from harness.records.schema import RANKED
from harness.run import session
from harness.run.deadline import Deadline, OutOfTimeError
from harness.run.draw import as_drawn
from harness.run.invocation import Invocation
from harness.run.opening import RUNS, InUseError, claimed
from harness.run.plan import Job, left_to_do
from harness.run.progress import Display, counted
from harness.run.resolve import check
from harness.run.session import Planned, library_versions, plan_run
from harness.worker.messages import Hello

State = Literal["current", "stale", "missing"]
Fate = Literal["published", "unfinished", "failed"]  # failed: no implementation passed
UNKNOWN_ROW_S = 1.0  # where no device has a published run of the name
ASSUMED = "this machine has no such device, so every library that the plan names is taken to be installed"


class Place(NamedTuple):
    """The device that is surveyed; `here` says that a worker can use it, and `kind` is what a fleet calls it."""

    profile: profiles.DeviceProfile
    facts: DeviceFacts
    here: bool
    gpus: int = 1
    kind: str | None = None


@dataclass(frozen=True)
class Task:
    """A run of the plan: the state of its published file and why, and the jobs that an unfinished run has left.

    A job takes about `job_s`.
    """

    name: str
    invocation: Invocation
    state: State
    reasons: tuple[str, ...]
    jobs: Sequence[Job]
    job_s: float


@dataclass(frozen=True)
class Survey:
    """Surveys the plan for one device; `work` is the folder of unfinished runs, `published` that of all devices."""

    plan: Plan
    place: Place
    invocation: Invocation
    hello: Hello
    work: Path
    published: Path

    def one(self, name: str) -> Task:
        """One run of the plan; compute-sanitizer supports only NVIDIA's GPUs."""
        entry, place = self.plan.runs[name], self.place
        invocation = self.invocation.changed(
            settings=entry.settings,
            device=place.profile.name,
            tuned_files=entry.tuned_files(place.profile.name) if place.here else (),
            sanitizer=entry.sanitizer and place.facts.architecture.startswith("sm_"),
            out=self.work / name,
            command=entry.command_line(place.profile.name),
        )
        there = None if place.here else (place.profile, place.facts)
        drawn = as_drawn(entry.settings, self.work / name / RESULTS_NAME, self.file_of(name))
        planned = plan_run(
            invocation.changed(settings=drawn, allow_others=True), self.hello_for(invocation), there
        )  # nothing is measured yet
        state, reasons = self._state(name, planned)
        jobs = self._left(name, planned)
        if len(jobs) < len(planned.jobs):
            reasons.append(f"begun: {len(jobs)} of {len(planned.jobs)} jobs are left")
        return Task(name, invocation, state, tuple(reasons), jobs, self._job_s(name, planned.jobs))

    def hello_for(self, run: Invocation) -> Hello:
        """What a worker of a run says; only one that was given the device's tuned file knows its implementations."""
        return self._tuned_hello if run.tuned_files else self.hello

    @cached_property
    def _tuned_hello(self) -> Hello:
        files = next(files for run in self.plan.runs.values() if (files := run.tuned_files(self.place.profile.name)))
        return session.inventory(self.invocation.changed(device="auto", tuned_files=files))

    def file_of(self, name: str) -> Path:
        """Where a run is published."""
        return file_of(self.place.profile.name, name, self.published)

    def _state(self, name: str, planned: Planned) -> tuple[State, list[str]]:
        if not (path := self.file_of(name)).exists():
            return "missing", []
        if isinstance(results := _read(path), str):
            return "stale", [results]
        reasons = self._out_of_date(name, results, planned)
        any_will_do = not self.place.here and planned.settings.impls is None  # what is installed there is not known
        known = {impl.name for impl in results.run.implementations if any_will_do or not impl.missing}
        runnable = [impl.name for impl in planned.impls if not (self.place.here and impl.missing)]
        if lacking := [impl for impl in runnable if impl not in known]:
            reasons.append(f"without {', '.join(lacking)}")
        cases = {job.case for job in planned.jobs} - {row.case for row in results.rows}
        if cases and results.finished_cases == results.run.jobs:
            reasons.append(f"without {len(cases)} of the cases")
        return ("stale" if reasons else "current"), reasons

    def _out_of_date(self, name: str, results: Results, planned: Planned) -> list[str]:
        """Other versions or options; a library that is not on this machine plays no part."""
        here = library_versions(self.hello, planned.impls) if self.place.here else {}
        return [
            *out_of_date(results, self.plan.runs[name].settings),
            *(
                f"{library} {version} where {here[library]} is here"
                for library, version in results.run.libraries.items()
                if here.get(library, version) != version
            ),
        ]

    def _left(self, name: str, planned: Planned) -> Sequence[Job]:
        """The jobs without those of an unfinished run, which has to be of today."""
        earlier = _read(self.work / name / RESULTS_NAME, torn=True)
        if isinstance(earlier, str) or {*self._out_of_date(name, earlier, planned)} - {UNFINISHED}:
            return planned.jobs
        return left_to_do(planned.jobs, earlier, planned.settings.timed)

    def _job_s(self, name: str, jobs: Sequence[Job]) -> float:
        """About how long a job of a run takes on one GPU: by the rows of its published file, of any device."""
        own = self.file_of(name)
        read = (_read(path) for path in (own, *sorted(self.published.glob(f"*/{own.name}"))))
        known_s = (s for results in read if not isinstance(results, str) and (s := seconds_of_a_row(results)))
        rows_of_a_job = sum(len(job.impls) for job in jobs) / max(1, len(jobs))
        return rows_of_a_job * next(known_s, UNKNOWN_ROW_S)

    def lines(self, tasks: Sequence[Task]) -> str:
        """How many runs are current, and a line for each run."""
        counts = Counter(task.state for task in tasks)
        heading = ", ".join(f"{counts[state]} {state}" for state in get_args(State))
        due = [task for task in tasks if task.state != "current"]
        if due:
            gpus = f" on {self.place.gpus} GPUs" if self.place.gpus > 1 else ""
            heading += f"; {self.minutes(due)}{gpus} for all that is due"
        if not self.place.here and not self.invocation.fleet:
            heading += f"; {ASSUMED}"
        width = max(len(task.name) for task in tasks)
        texts = [f"{self.place.profile.name}: {heading}"]
        for task in tasks:
            state = (
                f"{task.state:7}  {self.minutes([task]):>11}  {'; '.join(task.reasons)}" if task in due else task.state
            )
            texts.append(f"  {task.name:{width}}  {state}".rstrip())
        return "\n".join(texts) + "\n"

    def minutes(self, tasks: Iterable[Task]) -> str:
        """About how long runs take on all GPUs, in words."""
        seconds = sum(task.job_s * len(task.jobs) for task in tasks)
        return f"about {max(1, round(seconds / self.place.gpus / 60))} min"

    def least_s(self, task: Task) -> float:
        """About how long a run's next job takes; of all its jobs on a fleet, where a run is not split over calls."""
        jobs = len(task.jobs)
        return task.job_s * (jobs / self.place.gpus if self.invocation.fleet is not None else bool(jobs))


def survey_plan(
    invocation: Invocation, display: Display, plan_file: Path = PLAN, published: Path = PUBLISHED
) -> list[tuple[Survey, list[Task]]]:
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
    places = [_on_fleet(invocation, hello)] if invocation.fleet else _places(invocation, hello, published)
    surveys = [
        Survey(
            plan,
            place,
            invocation.changed(kinds=place.kind),
            hello,
            invocation.out or RUNS / f"publish-{place.profile.name}",
            published,
        )
        for place in places
    ]
    return [(survey, [survey.one(name) for name in names]) for survey in surveys]


def _matching(plan: Plan, only: str | None) -> list[str]:
    """The runs of the plan that match --only, in its order; raises UsageError for a pattern that matches none."""
    patterns = [pattern.strip() for pattern in ("*" if only is None else only).split(",")]
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
        profile, facts = profiles.choose(invocation.device, hello.available)
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
    kind, gpus = choose_gpus(available, invocation.changed(kinds=kind), "--device")
    here = [profile.name for profile in map(profiles.detect, hello.available) if profile.family == kind]
    name = next(iter(here), kind) if named in (None, kind) else named
    return Place(*elsewhere(name), here=False, gpus=gpus, kind=kind)


def _read(path: Path, torn: bool = False) -> Results | str:
    """A results file, or why it cannot be read."""
    try:
        return load(path, torn)
    except UsageError as error:
        return str(error)


def publish(
    survey: Survey,
    tasks: Sequence[Task],
    display: Display,
    begun_s: float | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> dict[str, Fate]:
    """Measure the runs that are not current, most important first, and publish each as soon as it is finished.

    The minutes count from `begun_s` on the clock, by default from now. Raises UsageError where they are
    too few to begin any run, and what `bench` raises; after an InterruptedRun the same call resumes.
    """
    minutes = math.inf if survey.invocation.minutes is None else survey.invocation.minutes
    ends_s = (now_s() if begun_s is None else begun_s) + 60 * minutes
    due = [task for task in tasks if task.state != "current"]
    shortest_s = min(map(survey.least_s, due), default=0.0)
    if now_s() + shortest_s > ends_s:
        raise UsageError(
            f"--minutes {minutes:g}: nothing that is due can be begun in less than about {shortest_s / 60:.1f} minutes"
        )
    fates: dict[str, Fate] = {}
    errors: list[UsageError | UnavailableError] = []
    for task in due:
        display.say(f"{task.name}: {'; '.join([task.state, *task.reasons, survey.minutes([task])])}")
        try:
            with claimed(survey.work / f"{task.name}.lock"):
                fates |= _measure(survey, task.name, display, Deadline(ends_s, 0.0, now_s))
        except InUseError:
            display.say(f"{task.name}: another process measures it")
        except (UsageError, UnavailableError) as error:
            fates[task.name] = "unfinished"
            errors.append(error)
            display.say(f"{task.name}: {error}")
    if errors and len(errors) == len(fates):
        raise errors[0]
    return fates


def _measure(survey: Survey, name: str, display: Display, deadline: Deadline) -> dict[str, Fate]:
    """Begin a run or go on with it, and publish it if it is finished; empty where another process has done so.

    Cases of which too many blocks were void, or which have no self-test, are measured a second time.
    """
    task = survey.one(name)
    if task.state == "current":
        display.say(f"{name}: another process has published it")
        return {}
    for _ in range(2):
        if deadline.now_s() + survey.least_s(task) > deadline.ends_s:
            break
        try:
            path = _bench(survey, task, display, replace(deadline, job_s=task.job_s))
        except OutOfTimeError:
            break
        task = survey.one(name)
        if not any(row.status in RANKED for row in load(path).rows):
            display.say(f"{name}: nothing in it passed, so that it is not published: {path}")
            return {name: "failed"}
        if not task.jobs:
            pack(path, target := survey.file_of(name))
            _set_aside(path.parent, "published")
            display.say(f"published: {target}")
            return {name: "published"}
        display.say(f"{name}: {counted(len(task.jobs), 'case')} left, for void blocks or a self-test that died")
    display.say(f"{name}: kept as far as it came, for the next call")
    return {name: "unfinished"}


def _bench(survey: Survey, task: Task, display: Display, deadline: Deadline) -> Path:
    """`bench --resume`; what an earlier call left is set aside where it cannot be gone on with."""

    def bench(resume: bool) -> Path:
        invocation = task.invocation.changed(resume=resume)
        if invocation.fleet is not None:
            return spread.bench(invocation, display)
        return session.bench(invocation, display, deadline, survey.hello_for(invocation))

    if survey.invocation.fleet is not None and not task.invocation.settings.timed:
        raise UsageError("a fleet verifies nothing; publish it without --fleet")
    folder = survey.work / task.name
    if (folder / RESULTS_NAME).exists():
        try:
            return bench(resume=True)
        except InUseError:
            raise
        except UsageError as error:
            display.say(f"{task.name}: what an earlier call left is set aside: {error}")
        _set_aside(folder, "other")
    return bench(resume=False)


def _set_aside(folder: Path, why: str) -> None:
    """Rename a folder to make room for a new run; nothing that was measured is deleted."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{why}-{number}")).exists():
        number += 1
    folder.rename(aside)
