"""Whether a published file was measured as the plan says, with the code that is here; and if not, what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.results.contexts import parse_contexts
from harness.results.file import Results
from harness.results.published.planned import CHECKOUT, Plan
from harness.results.published.sources import hash_of
from harness.results.run_records import RunRecord
from harness.results.settings import Settings

OPTIONS = tuple(name for name, field in Settings.model_fields.items() if field.description)
RESOLVED = (
    "suite",
    "dtype",
    "baseline",
    "seeds",
    "repeats",
)  # where a plan gives none, a file has the device's default
UNFINISHED = "not finished"
UNHASHED = "measured before hashes of the code were recorded"


def changed_since(run: RunRecord, checkout: Path = CHECKOUT) -> tuple[str, ...]:
    """What a run measured with other code than is here now: names of implementations, then rooms of the engine.

    Empty where nothing has changed, and where the run recorded no hashes.
    """
    changed = [path for path, was in (run.sources or {}).items() if was != _now(path, checkout)]
    impls = [impl.name for impl in run.implementations if impl.source in changed and not impl.missing]
    sources = {impl.source for impl in run.implementations}
    return (*impls, *(path for path in changed if path not in sources))


def _now(path: str, checkout: Path) -> str | None:
    try:
        return hash_of(path, checkout)
    except UsageError:
        return None  # it is gone, or in no state to be measured


def stale_because(results: Results, planned: Settings | None, checkout: Path = CHECKOUT) -> tuple[str, ...]:
    """Why a published file is not what a run of today would be, a clause each; empty where it is current.

    `planned` is what the plan asks, None for a file that no run of the plan makes.
    """
    run = results.run
    reasons = [UNHASHED] if run.sources is None else []
    if changed := changed_since(run, checkout):
        reasons.append(f"since then {_listed(changed)} {'has' if len(changed) == 1 else 'have'} changed")
    if planned is not None:
        reasons += _asked_otherwise(run, planned)
    if results.end is None or results.end.interrupted:
        reasons.append(UNFINISHED)
    return tuple(reasons)


def _asked_otherwise(run: RunRecord, planned: Settings) -> list[str]:
    """The options that a run had otherwise than the plan; those that an early file does not tell are left out."""
    told = run.settings.model_fields_set if run.sources is None else OPTIONS
    return [
        f"{name} {_shown(getattr(run.settings, name))} where the plan says {_shown(getattr(planned, name))}"
        for name in OPTIONS
        if name in told and not _alike(name, run.settings, planned)
    ]


def _alike(name: str, was: Settings, planned: Settings) -> bool:
    before, now = getattr(was, name), getattr(planned, name)
    if name == "context":
        return parse_contexts(before) == parse_contexts(now)
    return before == now or (not now and name in RESOLVED)


def _shown(value: object) -> str:
    text = "none" if value in (None, "") else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def mark(results: Results, name: str, plan: Plan, checkout: Path = CHECKOUT) -> str:
    """What a table of a published file says of its age: the revision, and whether and why it is stale."""
    entry = plan.runs.get(name)
    reasons = stale_because(results, entry.settings if entry else None, checkout)
    measured = f"measured at revision {results.run.revision or 'unknown'}"
    return f"{measured}; stale: {'; '.join(reasons)}" if reasons else measured
