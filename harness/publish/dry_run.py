"""Lines of text about the plan: which runs are current, stale or missing, why, and how long they would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from harness.analysis.currency import out_of_date
from harness.errors import UsageError
from harness.publish.sitting import minutes_in_words
from harness.publish.survey import State, Survey, SurveyedRun
from harness.records.file import load
from harness.records.published_plan import file_of

ASSUMED = "this machine has no such device, so every library is taken to be installed"


def lines(survey: Survey, runs: Sequence[SurveyedRun]) -> str:
    """A line for each run of the plan, in its order, and without --only one for each other file that is published."""
    place = survey.place
    counts = Counter(run.state for run in runs)
    states = ", ".join(f"{counts[state]} {state}" for state in get_args(State) if counts[state] or state != "in part")
    gpus = f" on {place.gpus} GPUs" if place.gpus > 1 else ""
    due_s = sum(run.seconds for run in runs)
    total = f"; {minutes_in_words(due_s)}{gpus} for all that is due" if due_s else ""
    where = "" if place.here else f"; {ASSUMED}"
    width = max(len(run.name) for run in runs)
    heading = f"{place.name}: {states}{total}{where}"
    kept = _kept_files(survey, runs) if survey.invocation.only is None else []
    return "\n".join([heading, *(_line(run, width) for run in runs), *kept]) + "\n"


def _line(run: SurveyedRun, width: int) -> str:
    if run.state == "current":
        return f"  {run.name:{width}}  current"
    reasons = [*run.reasons]
    if run.resumes:
        reasons.append(f"begun: {len(run.jobs)} of {len(run.planned.jobs)} jobs are left")
    elif run.restart_reason is not None:
        reasons.append(f"begun, and has to be begun again: {run.restart_reason}")
    why = f"  {'; '.join(reasons)}" if reasons else ""
    return f"  {run.name:{width}}  {run.state:7}  {minutes_in_words(run.seconds):>11}{why}"


def _kept_files(survey: Survey, runs: Sequence[SurveyedRun]) -> list[str]:
    """A line for each published file that the plan does not measure."""
    current = {run.name for run in runs if run.state == "current"}
    texts: list[str] = []
    for name, entry in survey.plan.kept.items():
        path = file_of(survey.place.name, name, survey.published)
        if not path.exists():
            continue
        until = ", ".join(entry.superseded_by)
        if not until:
            how = "kept"
        elif current.issuperset(entry.superseded_by):
            how = f"superseded by {until}: delete it, its pages, and what the plan says of them"
        else:
            how = f"kept until these are current: {until}"
        texts.append(f"  {name}: {how}; {_mark(survey, name)}")
    return ["not measured by the plan:", *texts] if texts else []


def _mark(survey: Survey, name: str) -> str:
    try:
        results = load(file_of(survey.place.name, name, survey.published))
    except UsageError as error:
        return str(error)
    stale = f"; stale: {'; '.join(reasons)}" if (reasons := out_of_date(results, None)) else ""
    return f"measured at revision {results.revisions_in_words}{stale}"
