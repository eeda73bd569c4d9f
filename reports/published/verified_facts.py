"""The data of the verifications on one device for the reader's page: each implementation over all kinds of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import FAILED, Outcome, join_outcomes, norms, tried
from reports import figures
from reports.formats.verification import summary
from reports.table import Table

FAILS_ON = "fails on"


def verified_facts(runs: Sequence[Comparison]) -> list[dict[str, Any]]:
    """A table for each norm; none where nothing was verified."""
    of_runs = join_outcomes(runs) if runs else []
    return [_facts(norm, [outcome for outcome in of_runs if outcome.case.norm == norm]) for norm in norms(of_runs)]


def _facts(norm: str, of_norm: Sequence[Outcome]) -> dict[str, Any]:
    of_impl = tried(of_norm)
    ran = [outcome for outcome in of_norm if outcome.impl in of_impl]
    table = _summary(ran)
    return {
        "norm": norm,
        "cases": len({outcome.case for outcome in ran}),
        "heads": [*table.heads, FAILS_ON],
        "rows": [[*(cell.text for cell in row), _failures(of_impl[row[0].text])] for row in table.rows],
    }


def _summary(outcomes: Sequence[Outcome]) -> Table:
    (table,) = [part for part in summary(outcomes).parts if isinstance(part, Table)]
    return table


def _failures(of_impl: Sequence[Outcome]) -> str:
    """The kinds of inputs, and of the usual ones the shapes, on which it did not pass."""
    failed = [outcome.case for outcome in of_impl if outcome.status in FAILED]
    kinds = [f"{case.rows} x {case.cols}" if case.inputs == "normal" else case.inputs for case in failed]
    return ", ".join(dict.fromkeys(kinds)) or figures.NOTHING
