"""Measures the due runs of the plan by `bench --resume`, the most important first, and packs what is finished."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from harness.errors import UnavailableError, UsageError, name_hint
from harness.fleet import spread
from harness.publish.packing import pack
from harness.publish.survey import Survey, SurveyedRun, find_places
from harness.records.file import load
from harness.records.published_plan import PLAN, PUBLISHED, Plan, file_of, read_plan
from harness.records.schema import RANKED
from harness.run import session
from harness.run.deadline import Deadline, OutOfTimeError
from harness.run.invocation import Invocation
from harness.run.opening import RESULTS_NAME, RUNS, InUseError, claimed
from harness.run.progress import Display, counted
from harness.run.resolve import check
from harness.sanitizer import check as sanitizer


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
    for place in find_places(invocation, hello, published):
        on_place = invocation.changed(kinds=place.kind) if invocation.fleet else invocation
        work = invocation.out or RUNS / f"publish-{place.profile.name}"
        survey = Survey(plan, place, on_place, hello, work, published)
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
    shortest_s = min((_least_s(survey, run) for run in due), default=0.0)
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
            with claimed(run.work.with_name(f"{run.name}.lock")):
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
        elif not any(row.status in RANKED for row in load(path).rows):
            self.display.say(f"{run.name}: nothing in it passed, so that it is not published: {path}")
            outcome.failed.append(run.name)
        else:
            target = file_of(self.survey.place.profile.name, run.name, self.survey.published)
            pack(path, target)
            self.display.say(f"published: {target}")
            _set_aside(run.work, "published")
            outcome.published.append(run.name)

    def _finish(self, run: SurveyedRun) -> tuple[Path | None, str]:
        """The file of a run if it is finished, or why it is not.

        Cases of which too many blocks were void, or which have no self-test, are measured a second time.
        """
        if why_not := _hindrance(self.survey, run):
            return None, f"not begun; {why_not}"
        again = ""
        for _ in range(2):
            if self.now_s() + _least_s(self.survey, run) > self.ends_s:
                break
            try:
                path = self._bench(run)
            except OutOfTimeError:
                break
            run = self.survey.one(run.name)
            if not run.jobs or not any(row.status in RANKED for row in load(path).rows):
                return path, ""
            again = f"{counted(len(run.jobs), 'case')} left, for too many void blocks or a self-test that died"
            self.display.say(f"{run.name}: {again}")
        how_far = "kept as far as it came" if (run.work / RESULTS_NAME).exists() else "not begun"
        return None, again or f"{how_far}; no time is left for it"

    def _bench(self, run: SurveyedRun) -> Path:
        """`bench --resume`; what an earlier call left is set aside where it cannot be gone on with."""
        invocation = self.survey.invocation_of(run.name)
        deadline = Deadline(self.ends_s, run.job_s, self.now_s)

        def bench(resume: bool) -> Path:
            asked = invocation.changed(resume=resume)
            if invocation.fleet is not None:
                (path,) = spread.bench(asked, self.display)
                return path
            return session.bench(asked, self.display, deadline, self.survey.hello)

        if not (run.work / RESULTS_NAME).exists():
            return bench(resume=False)
        try:
            return bench(resume=True)
        except InUseError:
            raise
        except UsageError as error:
            self.display.say(f"{run.name}: what an earlier call left is set aside: {error}")
        _set_aside(run.work, "other")
        return bench(resume=False)


def _set_aside(folder: Path, why: str) -> None:
    """Rename a folder to make room for a new run; nothing that was measured is deleted."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{why}-{number}")).exists():
        number += 1
    folder.rename(aside)


def _least_s(survey: Survey, run: SurveyedRun) -> float:
    """About how long a run's next job takes; of all its jobs on a fleet, where a run is not split over calls."""
    if _hindrance(survey, run):
        return math.inf
    return run.seconds / survey.place.gpus if survey.invocation.fleet is not None else run.job_s * bool(run.jobs)


def _hindrance(survey: Survey, run: SurveyedRun) -> str | None:
    """Why a run cannot be measured here at all, however much time there is; or None."""
    if survey.invocation.fleet is not None and not run.planned.settings.timed:
        return "a fleet verifies nothing; publish it without --fleet"
    try:
        if survey.invocation_of(run.name).sanitizer:
            sanitizer.find()
    except UnavailableError as error:
        return str(error)
    return None
