"""Whether drawn shapes are held out: nobody could know them when the kernel's version was committed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from harness.records.reasons import Reason
from harness.records.run_records import RunRecord


def why_not_held_out(run: RunRecord, revisions: Sequence[str | None] = ()) -> Reason | None:
    """Why the shapes of a run that drew some are not held out; None where they are.

    `revisions` are those at which the run began and was resumed.
    """
    drawn = run.drawn
    if drawn is None or drawn.chosen:
        return Reason("seed_chosen")
    if drawn.version is None:
        return Reason("kernel_not_measured", {"impl": drawn.impl})
    begun, committed = _seconds(run.started_at), _seconds(drawn.committed_at)
    if not (drawn.commit and begun and committed and run.revision) or run.revision.endswith("-dirty"):
        return Reason("kernel_not_committed", {"impl": drawn.impl})
    if begun < committed:
        return Reason(
            "drawn_before_version", {"impl": drawn.impl, "version": drawn.version, "at": drawn.committed_at or ""}
        )
    if {*revisions} - {run.revision}:
        return Reason("resumed_at_another_revision")
    return None


def _seconds(at: str | None) -> float | None:
    """A time as seconds; None for what a file may have in its place."""
    try:
        return datetime.fromisoformat(at or "").timestamp()
    except ValueError:
        return None
