"""Surveys the plan, and measures its due runs in order of importance, within the time of a sitting.

The first process of every run comes before the further processes of any run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from harness import devices
from harness.errors import UsageError, name_hint
from harness.fleet.cluster import connected
from harness.fleet.gathering import choose_gpus
from harness.fleet.preview import elsewhere
from harness.publish.sitting import Outcome, Sitting, least_s
from harness.publish.survey import Place, Survey, SurveyedRun, find_place, find_places
from harness.records.published_plan import PLAN, PUBLISHED, Plan, read_plan
from harness.run import session
from harness.run.invocation import Invocation
from harness.run.opening import RUNS
from harness.run.progress import Display
from harness.run.resolve import check
from harness.worker.messages import Hello


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
    for place in _places(invocation, hello, published):
        on_place = invocation.changed(kinds=place.kind) if invocation.fleet else invocation
        work = invocation.out or RUNS / f"publish-{place.name}"
        survey = Survey(plan, place, on_place, hello, work, published)
        surveys.append((survey, survey.all(names)))
    return surveys


def _places(invocation: Invocation, hello: Hello, published: Path) -> list[Place]:
    if invocation.fleet is not None:
        return [_on_fleet(invocation, hello)]
    return (
        find_places(invocation.device, hello, published)
        if invocation.dry_run
        else [find_place(invocation.device, hello)]
    )


def publish(
    survey: Survey,
    runs: Sequence[SurveyedRun],
    display: Display,
    begun_s: float | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Measure the runs that are not current, most important first, and publish each as soon as it is finished.

    The minutes of the sitting count from `begun_s` on the clock, by default from now. Raises UsageError where they are
    too few to begin any run, and what `bench` raises; after an InterruptedRun the same call resumes.
    """
    minutes = survey.invocation.minutes
    ends_s = (now_s() if begun_s is None else begun_s) + (math.inf if minutes is None else 60 * minutes)
    due = [run for run in runs if run.state != "current"]
    shortest_s = min((least_s(survey, run) for run in due), default=0.0)
    if shortest_s < math.inf and now_s() + shortest_s > ends_s:  # a run that cannot be measured here is reported later
        raise UsageError(
            f"--minutes {minutes:g}: nothing that is due can be begun in less than about {shortest_s / 60:.1f} minutes"
        )
    outcome = Outcome()
    sitting = Sitting(survey, outcome, ends_s, display, now_s)
    in_several = [run.name for run in due if run.planned.settings.processes > 1 and survey.invocation.fleet is None]
    for number, run in enumerate(due, start=1):
        display.say(f"{run.name} ({number} of {len(due)}): {_state_in_words(run)}; {sitting.estimate(run)}")
        sitting.measure(run, processes=1 if run.name in in_several else None)
    for run in map(survey.one, in_several):
        if run.state == "current" or run.name in outcome.failed:  # its first process was all that it lacked
            continue
        display.say(f"{run.name}, its further processes: {sitting.estimate(run)}")
        sitting.measure(run)
    return outcome


def _state_in_words(run: SurveyedRun) -> str:
    return f"{run.state} ({'; '.join(run.reasons)})" if run.reasons else run.state


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


def _matching(plan: Plan, only: str | None) -> list[str]:
    """The runs of the plan that match --only, in its order; raises UsageError for a pattern that matches none."""
    if only is None:
        return list(plan.runs)
    patterns = [pattern.strip() for pattern in only.split(",")]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in plan.runs):
            hint = name_hint(pattern, plan.runs)
            raise UsageError(f"--only {pattern or '(empty)'}: the plan has no such run; {hint}")
    return [name for name in plan.runs if any(fnmatchcase(name, pattern) for pattern in patterns)]
