"""A sitting: measures runs until its time is up, publishes each that is finished, and the complete part of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.analysis.currency import out_of_date
from harness.errors import UnavailableError, UsageError
from harness.fleet import spread
from harness.publish.packing import complete_part, pack, unpack
from harness.publish.survey import Survey, SurveyedRun
from harness.records.file import load
from harness.records.published_plan import file_of
from harness.records.schema import RANKED
from harness.run import session
from harness.run.compile_ahead import Task
from harness.run.invocation import Invocation
from harness.run.opening import RESULTS_NAME, InUseError, OtherRunError, claimed
from harness.run.progress import Display
from harness.run.sitting_time import OutOfTimeError, SittingTime
from harness.sanitizer import check as sanitizer
from harness.worker.messages import Hello

VOID = "for too many void blocks or a self-test that died"  # why a case is measured again


@dataclass
class Outcome:
    """The names of the runs that were published, unfinished or `failed`, and the `documents` to write again.

    In a failed run no implementation passed; its file is kept and not published.
    """

    published: list[str] = field(default_factory=list[str])
    unfinished: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    documents: list[str] = field(default_factory=list[str])


@dataclass
class Sitting:
    """Measures runs until `ends_s` on a clock, and notes their outcomes."""

    survey: Survey
    outcome: Outcome
    ends_s: float
    display: Display
    now_s: Callable[[], float]
    compiled: set[Task] = field(default_factory=set[Task])

    def measure(self, run: SurveyedRun, processes: int | None = None) -> None:
        """Begin or resume a run, publish it or its complete part, and note its outcome.

        With `processes`, only so many first processes are measured, and an unfinished run is not noted. A run that
        another sitting measures at the same time, or has measured since the survey, is left to it.
        """
        try:
            with claimed(run.work.with_name(f"{run.name}.lock")):
                now = self.survey.one(run.name)
                if now.state == "current":
                    self.display.say(f"{run.name}: another sitting has published it")
                else:
                    self._measure(now, processes)
        except InUseError:
            self.display.say(f"{run.name}: another sitting measures it")

    def _measure(self, run: SurveyedRun, processes: int | None) -> None:
        path, run, void = self._finish(run, processes)
        if path is None:
            if processes is None:
                self.display.say(f"{run.name}: {_why_unfinished(self.survey, run, void)}")
                self.outcome.unfinished.append(run.name)
            self._publish_part(run)
        elif not _passed(path):
            self.display.say(f"{run.name}: nothing in it passed, so that it is not published: {path}")
            self.outcome.failed.append(run.name)
        else:
            target = file_of(self.survey.place.name, run.name, self.survey.published)
            pack(path, target)
            self.display.say(f"published: {target}")
            _set_aside(run.work, "published")
            self._note_published(run)

    def _finish(self, run: SurveyedRun, processes: int | None) -> tuple[Path | None, SurveyedRun, int]:
        """Measure a run as far as time allows: its file if it is finished, the run as it is then, and its void cases.

        Cases of which too many blocks were void, or after which a self-test died, are measured a second time; the run
        is not finished without them.
        """
        void = 0
        while self._may_begin(run, sitting_time := self._sitting_time(run, processes)):
            earlier, path = run, None
            with suppress(OutOfTimeError):
                path = _measure(self.survey, run, sitting_time, self.display)
            run = self.survey.one(run.name)
            if path and not (run.resumes and run.jobs and _passed(path)):
                return path, run, 0
            if void or (path is None and len(run.jobs) == len(earlier.jobs)):
                break  # void a second time, or its next job takes longer than the time that is left
            if path:
                void = len(run.jobs)
                self.display.say(f"{run.name}: {_cases(void)} measured again, {VOID}")
        return None, run, void and len(run.jobs)

    def estimate(self, run: SurveyedRun) -> str:
        """About how long a run takes, and how much time is left, in words."""
        return f"{minutes_in_words(run.seconds)}{_time_left(self.ends_s - self.now_s())}"

    def _sitting_time(self, run: SurveyedRun, processes: int | None) -> SittingTime:
        times, workers = self.survey.run_times, session.compiling_processes(self.survey.invocation, run.planned)
        return SittingTime(
            self.ends_s,
            times.job_s(run.planned),
            times.timed.process_s,
            times.ahead_s(run.planned, workers, self.compiled),
            self.now_s,
            processes,
            compiled=self.compiled,
        )

    def _may_begin(self, run: SurveyedRun, sitting_time: SittingTime) -> bool:
        if run.jobs and not sitting_time.eligible(run.jobs):
            return False
        next_s = least_s(self.survey, run)
        return next_s < math.inf and self.now_s() + next_s <= self.ends_s

    def _note_published(self, run: SurveyedRun) -> None:
        if run.name not in self.outcome.published:
            self.outcome.published.append(run.name)
        documents = self.survey.plan.documents_of(run.name, self.survey.place.name)
        self.outcome.documents += [document for document in documents if document not in self.outcome.documents]

    def _publish_part(self, run: SurveyedRun) -> None:
        """Publish the complete part of an unfinished run, if it is more than what is published so far.

        The run stays due and will be resumed: documents say how many processes and cases the plan asks for.
        """
        path = run.earlier
        if path is None or not (run.resumes and run.planned.settings.timed):
            return
        results = load(path, torn=True)
        part = complete_part(results, run.jobs)
        target = file_of(self.survey.place.name, run.name, self.survey.published)
        if part is None or part.extent <= _published_extent(target, run) or not _passed(path):
            return
        pack(path, target, part)
        processes = f"{part.processes} of its {results.run.settings.processes} processes"
        extent = f"{part.cases} of its {results.run.jobs} cases" if part.left else processes
        self.display.say(f"published, {extent}: {target}")
        self._note_published(run)


def _passed(path: Path) -> bool:
    """Whether any implementation passed in an unfinished or finished run."""
    return any(row.status in RANKED for row in load(path, torn=True).rows)


def _published_extent(target: Path, run: SurveyedRun) -> tuple[int, int]:
    """The processes and cases of a published file; 0 without a file, or if it is stale for another reason."""
    try:
        results = load(target)
    except UsageError:
        return 0, 0
    stale = out_of_date(results, run.entry.settings)
    return (0, 0) if stale else (results.run.settings.processes, results.finished_cases)


def _measure(survey: Survey, run: SurveyedRun, sitting_time: SittingTime, display: Display) -> Path:
    """Begin or resume a run; raises OutOfTimeError where it is not finished in time."""
    invocation = survey.invocation_of(run.name, run.entry)
    if run.restart_reason is not None:
        display.say(f"{run.name}: what an earlier sitting left is set aside: {run.restart_reason}")
        _set_aside(run.work, "other")
        run = replace(run, earlier=None, restart_reason=None)
    unfinished = run.work / RESULTS_NAME
    if run.earlier is not None and run.earlier != unfinished:  # a part that was published from another machine
        unpack(run.earlier, unfinished, run.planned.settings.processes)
    try:
        return _bench(invocation.changed(resume=run.resumes), survey.hello, sitting_time, display)
    except OtherRunError as error:  # for a reason that only a worker can find, such as another device
        display.say(f"{run.name}: what an earlier sitting left is set aside: {error}")
        _set_aside(run.work, "other")
        return _bench(invocation, survey.hello, sitting_time, display)


def _bench(invocation: Invocation, hello: Hello, sitting_time: SittingTime, display: Display) -> Path:
    if invocation.fleet is None:
        return session.bench(invocation, display, sitting_time, hello)
    (path,) = spread.bench(invocation, display)
    return path


def _set_aside(folder: Path, why: str) -> None:
    """Rename a folder to make room for a new run; nothing that was measured is deleted."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{why}-{number}")).exists():
        number += 1
    folder.rename(aside)


def least_s(survey: Survey, run: SurveyedRun) -> float:
    """The estimated seconds of a run's next job; of all its jobs on a fleet, where a run is not split over sittings."""
    if _hindrance(survey, run):
        return math.inf
    if survey.invocation.fleet is not None:
        return run.seconds
    cost_s = survey.run_times.job_s(run.planned)
    return survey.run_times.timed.process_s + (cost_s(run.jobs[0]) if run.jobs else 0.0)


def _hindrance(survey: Survey, run: SurveyedRun) -> str | None:
    """Why a run cannot be measured here at all, however long the sitting is; or None."""
    if survey.invocation.fleet is not None and not run.planned.settings.timed:
        return "a fleet verifies nothing; publish it without --fleet"
    try:
        if survey.sanitizes(run.entry):
            sanitizer.find()
    except UnavailableError as error:
        return str(error)
    return None


def _why_unfinished(survey: Survey, run: SurveyedRun, void: int) -> str:
    """Why a run is not finished; `void` of its cases were measured again and still do not count."""
    if void:
        return f"{_cases(void)} left, {VOID}"
    how_far = "kept as far as it came" if run.resumes else "not begun"
    return f"{how_far}; {_hindrance(survey, run) or 'no time is left for it'}"


def _cases(number: int) -> str:
    return "1 case is" if number == 1 else f"{number} cases are"


def _time_left(seconds: float) -> str:
    return "" if seconds == math.inf else f", and {max(0.0, seconds) / 60:.0f} min are left"


def minutes_in_words(seconds: float) -> str:
    """A duration in minutes, such as `about 5 min`."""
    return f"about {max(1, round(seconds / 60))} min"
