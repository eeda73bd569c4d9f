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
    drawn, begun_at = run.drawn, datetime.fromisoformat(run.started_at)
    if drawn is None or drawn.chosen:
        return Reason("seed_chosen")
    if drawn.version is None:
        return Reason("kernel_not_measured", {"impl": drawn.impl})
    if not (drawn.commit and drawn.committed_at and run.revision) or run.revision.endswith("-dirty"):
        return Reason("kernel_not_committed", {"impl": drawn.impl})
    if begun_at < datetime.fromisoformat(drawn.committed_at):
        return Reason("drawn_before_version", {"impl": drawn.impl, "version": drawn.version, "at": drawn.committed_at})
    if {*revisions} - {run.revision}:
        return Reason("resumed_at_another_revision")
    return None
