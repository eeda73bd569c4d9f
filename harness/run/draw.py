"""Draws the seed of a run's shapes when it begins, and states which version of the kernel they were drawn for."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from harness.cases.drawn_shapes import parse_draw
from harness.defaults import OWN_FILES, OWN_IMPL
from harness.git import GitError, git
from harness.records.file import load
from harness.records.published_plan import CHECKOUT
from harness.records.run_records import DrawnRecord, ImplRecord
from harness.records.settings import Settings
from harness.run.invocation import Invocation
from harness.run.opening import file_to_resume

SEED_BITS = 48


def with_seed(invocation: Invocation) -> Invocation:
    """The invocation with a seed of the operating system for --draw, or with that of the run that it resumes."""
    draw = invocation.settings.draw
    if draw is None or parse_draw(draw)[1] is not None:
        return invocation
    if invocation.resume:
        earlier = load(file_to_resume(invocation.out), torn=True).run.settings
        return invocation.changed(draw=_seed_of(draw, earlier) or draw)
    return invocation.changed(draw=f"{draw.strip()}@{secrets.randbits(SEED_BITS)}", seed_of_system=True)


def as_drawn(settings: Settings, *files: Path) -> Settings:
    """The settings of a plan with the shapes of the first of these files that is there, to see what it lacks."""
    path = next((path for path in files if path.exists()), None) if settings.draw else None
    drawn = _seed_of(settings.draw or "", load(path, torn=True).run.settings) if path else None
    return settings.changed(draw=drawn) if drawn else settings


def _seed_of(draw: str, earlier: Settings) -> str | None:
    """What an earlier run of as many shapes drew."""
    return earlier.draw if earlier.draw and parse_draw(earlier.draw)[0] == parse_draw(draw)[0] else None


def drawn_record(invocation: Invocation, impls: Sequence[ImplRecord], checkout: Path = CHECKOUT) -> DrawnRecord | None:
    """What a run states of its drawn shapes; None where it has none."""
    if invocation.settings.draw is None:
        return None
    try:
        commit, _, committed_at = git(checkout, "log", "-1", "--format=%H %cI", "--", *OWN_FILES).partition(" ")
    except GitError:
        commit, committed_at = "", ""
    return DrawnRecord(
        seed=parse_draw(invocation.settings.draw)[1] or 0,
        chosen=not invocation.seed_of_system,
        impl=OWN_IMPL,
        version=next((impl.version for impl in impls if impl.name == OWN_IMPL), None),
        commit=commit or None,
        committed_at=committed_at or None,
    )
