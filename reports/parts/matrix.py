"""Which implementations are right on which cases: a table for each norm, and the faults by kind of inputs."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cases import Norm
from harness.cases.input_kinds import INPUT_KINDS
from harness.results.schema import RANKED
from reports import figures
from reports.data.case_labels import labels, usual
from reports.data.outcomes import WORDS, Outcome, norms
from reports.parts.reasons import details
from reports.table import Cell, Section, Table, table, words

ABOUT = (
    "right: every gradient is within three extra roundings of a float64 backward of the same stored inputs, and has "
    "the same bits in every run; nondet.: as right, with other bits in some runs; refused: the implementation itself "
    f"says that it does not support the case; -: not tried. {figures.LEGEND}; (flushes): right but for subnormal "
    "numbers taken as zero."
)


def section(outcomes: Sequence[Outcome]) -> Section:
    """A table for each norm, and one of the kinds of inputs."""
    kinds = Section("What the inputs are there to find", (_kinds(outcomes),))
    return Section("Outcomes", (ABOUT, *(_norm(norm, outcomes) for norm in norms(outcomes)), kinds))


def cell(outcome: Outcome | None) -> Cell:
    """The outcome in one word, with the mark of its error class where it passed, and its details as a tooltip."""
    if outcome is None:
        return Cell(figures.NOTHING)
    mark = figures.EXTRA_ROUNDINGS[outcome.checked.error_class or "exact"] if outcome.status in RANKED else ""
    why = details(outcome.reason, outcome.checked)
    return Cell(WORDS[outcome.status] + mark, status=outcome.status, why=tuple(why))


def _norm(norm: Norm, outcomes: Sequence[Outcome]) -> Section:
    by_place = {(outcome.case, outcome.impl): outcome for outcome in outcomes if outcome.case.norm == norm}
    named = labels([case for case, _ in by_place])
    impls = list(dict.fromkeys(outcome.impl for outcome in by_place.values() if outcome.status != "missing"))
    rows = [[label, *(cell(by_place.get((case, impl))) for impl in impls)] for case, label in named.items()]
    dtypes = f"Dtypes are {usual(list(named))} where nothing else is said."
    return Section(norm, (dtypes, table([*words("inputs"), *impls], rows)), norm)


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
    return table(words("kind", "what it is there to find", "wrong on it"), rows)
