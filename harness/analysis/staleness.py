"""Decides whether a published file is stale: measured with other code than here, or otherwise than the plan says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.analysis.other_verdicts import read_other_verdicts
from harness.analysis.same_launches import changes_of
from harness.analysis.sources import hash_of
from harness.cases import NormCase
from harness.errors import UsageError
from harness.records.contexts import parse_contexts
from harness.records.file import Results
from harness.records.published_plan import CHECKOUT, Plan, PlannedRun
from harness.records.run_records import RunRecord
from harness.records.schema import TOOLS
from harness.records.settings import Settings

OPTIONS = tuple(name for name, field in Settings.model_fields.items() if field.description)
RESOLVED = (
    "suite",
    "dtype",
    "baseline",
    "seeds",
    "repeats",
)  # where a plan gives none, a file has the device's default
UNFINISHED = "not finished"
IN_VAIN = "later changes of the code change no figure here"
UNHASHED = "measured before hashes of the code were recorded"


def changed_since(
    results: Results, checkout: Path = CHECKOUT, name: str | None = None, now: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The parts of the code that differ from those of a run: names of implementations, then rooms of the engine.

    Empty where nothing has changed that matters to its rows, and where the run recorded no hashes. `name` is that of a
    published file, or of what is to become one, for which a changed adapter may launch the same kernels. With `now`,
    the hashes of a run that is to go on, parts that this one alone has are changed too.
    """
    paths = [path for path, matters in _changes(results, checkout, name, now).items() if matters]
    if now is not None:
        paths += [path for path in now if path not in (results.run.sources or {})]
    return _named(results.run, paths)


def changed_in_vain(results: Results, name: str, checkout: Path = CHECKOUT) -> str | None:
    """IN_VAIN, where code has changed since a published file was measured and that matters to none of its rows."""
    return None if all(_changes(results, checkout, name).values()) else IN_VAIN


def _changes(
    results: Results, checkout: Path, name: str | None, now: Mapping[str, str] | None = None
) -> dict[str, bool]:
    """The paths of the code that have changed since any row was measured, and whether that matters to any row.

    It does not where the same kernels are launched for the file of this `name`, or the same is decided of its rows.
    """
    changes: dict[str, bool] = {}
    device = results.run.device.profile
    for sources, rows in results.by_code():
        for path, was in (sources or {}).items():
            here = _current_hash(path, checkout) if now is None else now.get(path)
            if was == here:
                continue
            deciding = any(change.covers(path, was, here, rows) for change in read_other_verdicts(checkout))
            launching = any(change.covers(device, name or "", was, here) for change in changes_of(path, checkout))
            changes[path] = changes.get(path, False) or not (deciding or launching)
    return changes


def _named(run: RunRecord, paths: Sequence[str]) -> tuple[str, ...]:
    """The names of the implementations of these paths, then the paths that are of none."""
    impls = [impl.name for impl in run.implementations if impl.source in paths and not impl.missing]
    sources = {impl.source for impl in run.implementations}
    return (*impls, *(path for path in paths if path not in sources))


def _current_hash(path: str, checkout: Path) -> str | None:
    try:
        return hash_of(path, checkout)
    except UsageError:
        return None  # the file is gone, or is not Python


def stale_because(
    results: Results, planned: Settings | None, checkout: Path = CHECKOUT, *, name: str | None = None
) -> tuple[str, ...]:
    """Why a published file is stale, a clause for each reason; empty where it is current.

    `planned` has the settings of the plan, None for a file that is no run of the plan. A file of fewer processes or
    cases than planned is not stale for that, nor is one for which changed code decides the same of every row, or one
    published under this `name` for which changed adapters launch the same kernels.
    """
    run = results.run
    reasons = [UNHASHED] if run.sources is None else []
    if changed := changed_since(results, checkout, name):
        reasons.append(f"since then {_listed(changed)} {'has' if len(changed) == 1 else 'have'} changed")
    if planned is not None:
        reasons += _differing_options(run, planned)
    if results.end is None or results.end.interrupted:
        reasons.append(UNFINISHED)
    return tuple(reasons)


def _differing_options(run: RunRecord, planned: Settings) -> list[str]:
    """The options of a run that differ from the plan; those that an early file lacks are left out."""
    recorded = run.settings.model_fields_set if run.sources is None else OPTIONS
    return [
        f"{name} {_shown(getattr(run.settings, name))} where the plan says {_shown(getattr(planned, name))}"
        for name in OPTIONS
        if name in recorded and not _equal(name, run.settings, planned)
    ]


def part_so_far(results: Results, planned: PlannedRun | None) -> str | None:
    """How many of the planned processes, cases and tools of the sanitizer a file has, in words; None where all.

    A file with other options than the plan's is a part of its own run: its cases are counted, its processes are not.
    """
    if planned is None:
        return None
    run, parts = results.run, list[str]()
    is_planned = not _differing_options(run, planned.settings)
    if is_planned and run.settings.processes < planned.settings.processes:
        parts.append(f"{run.settings.processes} of {planned.settings.processes} processes")
    if results.finished_cases < run.jobs:
        parts.append(f"{results.finished_cases} of {run.jobs} cases")
    tools = {record.tool for record in results.sanitized}
    if planned.sanitizer and 0 < len(tools) < len(TOOLS):
        parts.append(f"{len(tools)} of {len(TOOLS)} tools of compute-sanitizer")
    return f"{', '.join(parts)} so far" if parts else None


def cases_lacking(results: Results, planned: set[NormCase]) -> set[NormCase]:
    """The planned cases that a file lacks; none where it is a part of a run of all of them."""
    measured = {row.case for row in results.rows}
    is_part = measured <= planned and results.run.jobs == len(planned)
    return set() if is_part else planned - measured


def _equal(name: str, recorded: Settings, planned: Settings) -> bool:
    before, now = getattr(recorded, name), getattr(planned, name)
    if name == "context":
        return parse_contexts(before) == parse_contexts(now)
    if name == "processes":  # fewer are a part of what is planned: `part_so_far`
        return before <= now
    return before == now or (not now and name in RESOLVED)


def _shown(value: object) -> str:
    text = "none" if value in (None, "") else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def mark(results: Results, name: str, plan: Plan, checkout: Path = CHECKOUT) -> str:
    """The age of a published file, for a table: its revision, what has changed, and which part of the run it is."""
    entry = plan.runs.get(name)
    planned = entry.settings if entry else None
    reasons = stale_because(results, planned, checkout, name=name)
    in_vain = changed_in_vain(results, name, checkout)
    measured = f"measured at revision {results.revisions_in_words}"
    stale = f"stale: {'; '.join(reasons)}" if reasons else None
    return "; ".join(filter(None, [measured, in_vain, part_so_far(results, entry), stale]))
