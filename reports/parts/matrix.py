"""Which implementations are right on which cases, norm by norm, and the faults by kind of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.analysis.outcomes import Outcome, norms
from harness.cases import Norm, NormCase, catalogue
from harness.cases.input_kinds import INPUT_KINDS
from harness.records.schema import RANKED, Status
from reports import figures
from reports.labels import case_labels, usual
from reports.parts.reasons import details
from reports.table import Cell, Section, Table, left, table

ABOUT = (
    "right: every gradient is within three extra roundings of a float64 backward of the same stored inputs, and has "
    "the same bits in every run; nondet.: as right, with other bits in some runs; refused: the implementation says "
    "that it does not support the case, or raises where an input is not contiguous. "
    f"{figures.LEGEND}; (flushes): right but for subnormal numbers taken as zero."
)
WORDS: dict[Status, str] = {
    "ok": "right",
    "nondeterministic": "nondet.",
    "unsupported": "refused",
    "wrong": "wrong",
    "impossible": "impossible",
    "crashed": "crashed",
    "timeout": "timeout",
    "oom": "oom",
    "missing": figures.NOTHING,
}


def section(outcomes: Sequence[Outcome]) -> Section:
    """The tables of each norm, and one of the kinds of inputs."""
    kinds = Section("What the inputs are there to find", (_kinds(outcomes),))
    parts = (ABOUT, not_tried(outcomes), *(_norm(norm, outcomes) for norm in norms(outcomes)), kinds)
    return Section("Outcomes", parts)


def not_tried(outcomes: Sequence[Outcome]) -> str:
    """The parameters, variants, dtypes and inputs that none of these cases has."""
    return f"Not tried: {', '.join(catalogue.not_tried({outcome.case for outcome in outcomes}))}."


def cell(outcome: Outcome) -> Cell:
    """The outcome in one word, with the mark of its error class where it passed, and its details as a tooltip."""
    mark = figures.EXTRA_ROUNDINGS[outcome.checked.error_class or "exact"] if outcome.status in RANKED else ""
    why = details(outcome.reason, outcome.checked)
    return Cell(WORDS[outcome.status] + mark, status=outcome.status, why=tuple(why))


def _norm(norm: Norm, outcomes: Sequence[Outcome]) -> Section:
    """A table for each set of implementations that were tried on the same cases: one for all could be mostly empty."""
    by_case = _tried([outcome for outcome in outcomes if outcome.case.norm == norm])
    groups: dict[tuple[str, ...], dict[str, dict[str, Outcome]]] = {}
    for case, label in case_labels(list(by_case)).items():
        groups.setdefault(tuple(by_case[case]), {})[label] = by_case[case]
    parts: list[str | Table] = [f"Dtypes are {usual(list(by_case))} where nothing else is said."]
    for impls, rows in groups.items():
        if len(groups) > 1:
            who = f"{impls[0]} alone" if len(impls) == 1 else figures.count(len(impls), "implementation")
            parts.append(f"{who} on {figures.count(len(rows), 'case')}.")
        parts += _together(impls, rows)
    return Section(norm, tuple(parts), norm)


def _tried(outcomes: Sequence[Outcome]) -> dict[NormCase, dict[str, Outcome]]:
    """For each case the outcomes of the implementations that were tried on it."""
    by_case: dict[NormCase, dict[str, Outcome]] = {outcome.case: {} for outcome in outcomes}
    for outcome in outcomes:
        if outcome.status != "missing":
            by_case[outcome.case][outcome.impl] = outcome
    return by_case


def _together(impls: Sequence[str], rows: Mapping[str, Mapping[str, Outcome]]) -> list[str | Table]:
    """The table of these rows; implementations that refuse all of them are named before it, and have no column."""
    refusing = [impl for impl in impls if all(row[impl].status == "unsupported" for row in rows.values())]
    shown = [impl for impl in impls if impl not in refusing]
    cells = [[label, *(cell(row[impl]) for impl in shown)] for label, row in rows.items()]
    refused = [f"Refused by: {', '.join(refusing)}."] if refusing else []
    return [*refused, table([*left("inputs"), *shown], cells)]


def _kinds(outcomes: Sequence[Outcome]) -> Table:
    wrong = {
        name: dict.fromkeys(
            outcome.impl for outcome in outcomes if outcome.case.inputs == name and outcome.status == "wrong"
        )
        for name in INPUT_KINDS
    }
    used = {outcome.case.inputs for outcome in outcomes}
    rows = [
        [name, kind.finds, ", ".join(wrong[name]) or figures.NOTHING]
        for name, kind in INPUT_KINDS.items()
        if name in used
    ]
    return table(left("kind", "what it is there to find", "wrong on it"), rows)
