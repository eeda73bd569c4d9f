"""Measures what is due in order of importance, as far as the time of a sitting goes, and publishes what is finished.

One process of every run comes before the further processes of any.
"""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from harness.errors import UnavailableError, UsageError
from harness.fleet import spread
from harness.fleet.cluster import connected
from harness.fleet.gathering import chosen
from harness.fleet.preview import elsewhere
from harness.publish.packing import pack, whole_processes
from harness.publish.survey import Place, Survey, Surveyed, find_place, find_places
from harness.results.file import load
from harness.results.published.planned import PLAN, PUBLISHED, Plan, file_of, read_plan
from harness.results.published.staleness import stale_because
from harness.results.schema import RANKED
from harness.run import session
from harness.run.invocation import Invocation
from harness.run.opening import RESULTS_NAME, RUNS, OtherRunError
from harness.run.progress import Display
from harness.run.resolve import check
from harness.run.sitting_time import OutOfTimeError, SittingTime
from harness.sanitizer import check as sanitizer
from harness.worker.messages import Hello


@dataclass
class Outcome:
    """What became of the runs that were due, by name; `documents` are to be written again.

    Of the `failed` nothing passed, so that they are kept and not published.
    """

    published: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    documents: list[str] = field(default_factory=list[str])


def survey(
    invocation: Invocation, display: Display, plan_file: Path = PLAN, published: Path = PUBLISHED
) -> list[tuple[Survey, list[Surveyed]]]:
    """Look at the runs that are asked for, for the GPU that is to measure them.

    With `dry_run` it may be elsewhere, and be several; on a fleet it is one kind. Raises UsageError and
    UnavailableError.
    """
    if invocation.minutes is not None and not 0 < invocation.minutes < math.inf:
        raise UsageError(f"--minutes {invocation.minutes:g}: must be positive")
    check(invocation)
    plan = read_plan(plan_file)
    names = _named(plan, invocation.only)
    display.say("starting a worker to see what is here")
    hello = session.inventory(invocation.changed(device="auto"))
    looks: list[tuple[Survey, list[Surveyed]]] = []
    for place in _places(invocation, hello, published):
        on_place = invocation.changed(kinds=place.name) if invocation.fleet else invocation
        work = invocation.out or RUNS / f"publish-{place.name}"
        look = Survey(plan, place, on_place, hello, work, published)
        looks.append((look, look.all(names)))
    return looks


def _places(invocation: Invocation, hello: Hello, published: Path) -> list[Place]:
    if invocation.fleet is not None:
        return [_on_fleet(invocation)]
    return (
        find_places(invocation.device, hello, published)
        if invocation.dry_run
        else [find_place(invocation.device, hello)]
    )


def publish(
    look: Survey,
    surveyed: Sequence[Surveyed],
    display: Display,
    begun_s: float | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Measure what is not current, most important first, and publish each run as soon as it is finished.

    The minutes of the sitting count from `begun_s` on its clock, or from now. Raises UsageError where no run can be
    begun in them, and what `bench` raises; InterruptedRun keeps what is done.
    """
    minutes = look.invocation.minutes
    ends_s = (now_s() if begun_s is None else begun_s) + (math.inf if minutes is None else 60 * minutes)
    due = [each for each in surveyed if each.state != "current"]
    least_s = min((_least_s(look, each) for each in due), default=0.0)
    if least_s < math.inf and now_s() + least_s > ends_s:  # what is hindered in any time says so itself
        raise UsageError(
            f"--minutes {minutes:g}: nothing that is due can be begun in less than about {least_s / 60:.1f} minutes"
        )
    outcome = Outcome()
    sitting = _Sitting(look, outcome, ends_s, display, now_s)
    in_several = [each.name for each in due if each.planned.settings.processes > 1 and look.invocation.fleet is None]
    for number, each in enumerate(due, start=1):
        display.say(f"{each.name} ({number} of {len(due)}): {_why(each)}; {sitting.told(each)}")
        sitting.settle(each, processes=1 if each.name in in_several else None)
    for each in map(look.one, in_several):
        display.say(f"{each.name}, its further processes: {sitting.told(each)}")
        sitting.settle(each)
    return outcome


def told_time(seconds: float) -> str:
    """A duration as a person is told of it."""
    return f"about {max(1, round(seconds / 60))} min"


@dataclass
class _Sitting:
    """What is measured until `ends_s` on a clock, and what becomes of it."""

    look: Survey
    outcome: Outcome
    ends_s: float
    display: Display
    now_s: Callable[[], float]

    def settle(self, each: Surveyed, processes: int | None = None) -> None:
        """Go on with one run until it is finished or no time is left for it, and note what became of it.

        With `processes` no more than the first so many of it, of which only what they publish is noted.
        """
        path = None
        while path is None and self._may_begin(each, within := self._within(each, processes)):
            try:
                path = _measure(self.look, each, within, self.display)
            except OutOfTimeError:
                earlier, each = each, self.look.one(each.name)
                if len(each.left) == len(earlier.left):
                    break  # what it began with is longer than what is left
        if path is None:
            if processes is None:
                self.display.say(f"{each.name}: {_why_left(self.look, each)}")
                self.outcome.left.append(each.name)
            self._publish_whole_processes(each)
        elif not any(row.status in RANKED for row in load(path).rows):
            self.display.say(f"{each.name}: nothing in it passed, so that it is not published: {path}")
            self.outcome.failed.append(each.name)
        else:
            target = file_of(self.look.place.name, each.name, self.look.published)
            pack(path, target)
            self.display.say(f"published: {target}")
            _set_aside(each.work, "published")
            self._note_published(each)

    def told(self, each: Surveyed) -> str:
        """About how long a run takes, and what of the time is left."""
        return f"{told_time(each.seconds)}{_left(self.ends_s - self.now_s())}"

    def _within(self, each: Surveyed, processes: int | None) -> SittingTime:
        took = self.look.took
        return SittingTime(self.ends_s, took.job_s(each.planned), took.timed.process_s, self.now_s, processes)

    def _may_begin(self, each: Surveyed, within: SittingTime) -> bool:
        if each.left and not within.eligible(each.left):
            return False
        least_s = _least_s(self.look, each)
        return least_s < math.inf and self.now_s() + least_s <= self.ends_s

    def _note_published(self, each: Surveyed) -> None:
        if each.name not in self.outcome.published:
            self.outcome.published.append(each.name)
        documents = self.look.plan.documents_of(each.name, self.look.place.name)
        self.outcome.documents += [document for document in documents if document not in self.outcome.documents]

    def _publish_whole_processes(self, each: Surveyed) -> None:
        """Publish of an unfinished run the processes that have measured every case, where that is more than there is.

        The run stays due, and is gone on with: documents say how many processes the plan asks for.
        """
        path = each.work / RESULTS_NAME
        if not (each.resumes and each.planned.settings.timed):
            return
        done = load(path, torn=True)
        whole, asked = whole_processes(done), done.run.settings.processes
        target = file_of(self.look.place.name, each.name, self.look.published)
        if whole <= _published_processes(target, each) or not any(row.status in RANKED for row in done.rows):
            return
        pack(path, target, whole)
        self.display.say(f"published, {whole} of its {asked} processes: {target}")
        self._note_published(each)


def _published_processes(target: Path, each: Surveyed) -> int:
    """How many processes a published file has that is stale in nothing else; 0 where it is, or where there is none."""
    try:
        results = load(target)
    except UsageError:
        return 0
    processes = results.run.settings.processes
    return 0 if stale_because(results, each.run.settings.changed(processes=processes)) else processes


def _measure(look: Survey, each: Surveyed, within: SittingTime, display: Display) -> Path:
    """Begin a run or go on with it; raises OutOfTimeError where it is not finished then."""
    asked = look.asked(each.name, each.run)
    if each.begun_again is not None:
        display.say(f"{each.name}: what an earlier sitting left is set aside: {each.begun_again}")
        _set_aside(each.work, "other")
        each = replace(each, begun_again=None)
    try:
        return _run(asked.changed(resume=each.resumes), within, display)
    except OtherRunError as error:  # in a way that only a worker can see, such as another device
        display.say(f"{each.name}: what an earlier sitting left is set aside: {error}")
        _set_aside(each.work, "other")
        return _run(asked, within, display)


def _run(asked: Invocation, within: SittingTime, display: Display) -> Path:
    if asked.fleet is None:
        return session.bench(asked, display, within)
    (path,) = spread.bench(asked, display)
    return path


def _set_aside(folder: Path, why: str) -> None:
    """Rename a folder, so that a new run may have its place; nothing that was measured is deleted."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{why}-{number}")).exists():
        number += 1
    folder.rename(aside)


def _least_s(look: Survey, each: Surveyed) -> float:
    """About how long it takes until a run has got any further; on a fleet all of it, as it is not ended there."""
    if _hindrance(look, each):
        return math.inf
    if look.invocation.fleet is not None:
        return each.seconds
    cost_s = look.took.job_s(each.planned)
    return look.took.timed.process_s + (cost_s(each.left[0]) if each.left else 0.0)


def _hindrance(look: Survey, each: Surveyed) -> str | None:
    """Why a run cannot be measured in this sitting, however long that is."""
    if look.invocation.fleet is not None and not each.planned.settings.timed:
        return "a fleet verifies nothing; publish it without --fleet"
    try:
        if look.sanitizes(each.run):
            sanitizer.find()
    except UnavailableError as error:
        return str(error)
    return None


def _why_left(look: Survey, each: Surveyed) -> str:
    how_far = "kept as far as it came" if each.resumes else "not begun"
    return f"{how_far}; {_hindrance(look, each) or 'no time is left for it'}"


def _why(each: Surveyed) -> str:
    return f"{each.state} ({'; '.join(each.reasons)})" if each.reasons else each.state


def _left(seconds: float) -> str:
    return "" if seconds == math.inf else f", and {max(0.0, seconds) / 60:.0f} min are left"


def _on_fleet(invocation: Invocation) -> Place:
    """The GPUs of one kind in a fleet: of the one that is asked for, or of the only one."""
    assert invocation.fleet is not None, "it is asked for"
    asked = None if invocation.device == "auto" else invocation.device
    with connected(invocation.fleet) as cluster:
        counts = chosen(cluster.gpus(), invocation.changed(kinds=asked))
    if len(counts) > 1:
        raise UsageError(f"--fleet {invocation.fleet}: it has {', '.join(counts)}; name one of them with --device")
    ((kind, gpus),) = counts.items()
    return Place(*elsewhere(kind), here=False, gpus=gpus)


def _named(plan: Plan, only: str | None) -> list[str]:
    """The runs of the plan that fit the names or patterns, in its order; raises UsageError for one that fits none."""
    if only is None:
        return list(plan.runs)
    patterns = [pattern.strip() for pattern in only.split(",")]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in plan.runs):
            close = difflib.get_close_matches(pattern, plan.runs, 1)
            hint = f"did you mean {close[0]}?" if close else f"choose among {', '.join(plan.runs)}"
            raise UsageError(f"--only {pattern or '(empty)'}: the plan has no such run; {hint}")
    return [name for name in plan.runs if any(fnmatchcase(name, pattern) for pattern in patterns)]
