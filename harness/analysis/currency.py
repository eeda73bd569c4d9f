"""Decides whether a published file is out of date: measured with another version, or otherwise than the plan says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from harness.engine_version import ENGINE_VERSION
from harness.records.file import Results
from harness.records.published_plan import CHECKOUT
from harness.records.run_records import RunRecord
from harness.records.settings import OPTIONS, Settings, in_words

BY_DEVICE = ("suite", "dtype", "baseline", "seeds", "repeats")  # unset in a plan: the file has the device's default
UNFINISHED = "not finished"
NAME = re.compile(r'^name = "(.+)"', re.MULTILINE)
VERSION = re.compile(r"^version = (\d+)", re.MULTILINE)


def out_of_date(results: Results, planned: Settings | None, checkout: Path = CHECKOUT) -> tuple[str, ...]:
    """Why a published file is out of date, a clause for each reason; empty where it is current.

    `planned` has the settings of the plan, None for a file that is no run of the plan.
    """
    reasons = _other_versions(results.run, adapter_versions(checkout))
    if planned is not None:
        reasons += _differing_options(results.run, planned)
    if results.end is None or results.end.interrupted:
        reasons.append(UNFINISHED)
    elif results.finished_cases < results.run.jobs:
        reasons.append(f"{results.finished_cases} of {results.run.jobs} cases")
    return tuple(reasons)


@cache
def adapter_versions(checkout: Path = CHECKOUT) -> dict[str, int]:
    """The version of each adapter in impls/, by its name. Read as text: an import would need Triton and the like."""
    texts = [path.read_text(encoding="utf-8") for path in checkout.glob("impls/**/*.py")]
    named = [(name[1], VERSION.search(text)) for text in texts if (name := NAME.search(text))]
    return {name: int(version[1]) if version else 0 for name, version in named}


def _other_versions(run: RunRecord, adapters: dict[str, int]) -> list[str]:
    """Where the versions of a run are not those of today; a file of --impl states a hash instead."""
    own = [impl for impl in run.implementations if is_own(impl.source) and not impl.missing]
    measured = {"the engine": run.engine_version} | {impl.family: impl.version for impl in own}
    today = {"the engine": ENGINE_VERSION} | adapters
    return [
        f"version {version} of {name} where {today[name]} is here" if name in today else f"{name} is no adapter here"
        for name, version in measured.items()
        if today.get(name) != version
    ]


def is_own(source: str) -> bool:
    """Whether an adapter, as a run names its file, is one of this project's."""
    return source.startswith("impls/")


def _differing_options(run: RunRecord, planned: Settings) -> list[str]:
    """The options of a run that differ from the plan."""
    return [
        f"{name} {_shown(getattr(run.settings, name))} where the plan says {_shown(getattr(planned, name))}"
        for name in OPTIONS
        if (now := getattr(planned, name)) != _unseeded(name, run, now) and (now or name not in BY_DEVICE)
    ]


def _unseeded(name: str, run: RunRecord, planned: object) -> object:
    """An option of a run; without the seed that was drawn where the plan names none."""
    value = getattr(run.settings, name)
    return value.partition("@")[0] if name == "draw" and value and "@" not in str(planned) else value


def mark(results: Results, reasons: Sequence[str]) -> str:
    """The age of a published file, for a table: its revisions, and the reasons why it is out of date."""
    revisions = " and ".join(revision or "unknown" for revision in results.revisions)
    return f"measured at revision {revisions}" + (f"; stale: {'; '.join(reasons)}" if reasons else "")


def _shown(value: object) -> str:
    text = "none" if value in (None, "") else in_words(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
