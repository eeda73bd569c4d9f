"""The state of the plan in lines of text: what is current, stale or missing, why, and how long it would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.errors import UsageError
from harness.publish.publishing import told_time
from harness.publish.survey import Survey, Surveyed
from harness.results.file import load
from harness.results.published.planned import file_of
from harness.results.published.staleness import mark

ASSUMED = "this machine has no such device, so every library is taken to be installed"


def lines(look: Survey, surveyed: Sequence[Surveyed]) -> str:
    """A line for each run of the plan, in its order, and one for each other file that is published."""
    place = look.place
    counts = Counter(each.state for each in surveyed)
    told = ", ".join(f"{counts[state]} {state}" for state in ("current", "stale", "missing"))
    gpus = f" on {place.gpus} GPUs" if place.gpus > 1 else ""
    due_s = sum(each.seconds for each in surveyed)
    total = f"; {told_time(due_s)}{gpus} for all that is due" if due_s else ""
    where = "" if place.here else f"; {ASSUMED}"
    width = max(len(each.name) for each in surveyed)
    heading = f"{place.name}: {told}{total}{where}"
    return "\n".join([heading, *(_line(each, width) for each in surveyed), *_kept(look, surveyed)]) + "\n"


def _line(each: Surveyed, width: int) -> str:
    if each.state == "current":
        return f"  {each.name:{width}}  current"
    reasons = [*each.reasons]
    if each.resumes:
        reasons.append(f"begun: {len(each.left)} of {len(each.planned.jobs)} jobs are left")
    elif each.begun_again is not None:
        reasons.append(f"begun, and has to be begun again: {each.begun_again}")
    why = f"  {'; '.join(reasons)}" if reasons else ""
    return f"  {each.name:{width}}  {each.state:7}  {told_time(each.seconds):>11}{why}"


def _kept(look: Survey, surveyed: Sequence[Surveyed]) -> list[str]:
    """The files that no run of the plan makes."""
    current = {each.name for each in surveyed if each.state == "current"}
    told: list[str] = []
    for name, entry in look.plan.kept.items():
        path = file_of(look.place.name, name, look.published)
        if not path.exists():
            continue
        until = ", ".join(entry.superseded_by)
        if not until:
            how = "kept"
        elif current.issuperset(entry.superseded_by):
            how = f"superseded by {until}: delete it, its pages, and what the plan says of them"
        else:
            how = f"kept until these are current: {until}"
        told.append(f"  {name}: {how}; {_mark(look, name)}")
    return ["not measured by the plan:", *told] if told else []


def _mark(look: Survey, name: str) -> str:
    try:
        return mark(load(file_of(look.place.name, name, look.published)), name, look.plan)
    except UsageError as error:
        return str(error)
