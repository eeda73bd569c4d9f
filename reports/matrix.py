"""Who is right on what: a table of outcomes for each norm, and what each kind of inputs has found."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cases import Norm
from harness.kinds import KINDS
from harness.records import RANKED
from reports import figures
from reports.case_labels import labels, usual
from reports.markdown_table import table
from reports.outcomes import WORDS, Outcome, norms

ABOUT = (
    "right: every gradient is within three extra roundings of a float64 backward of the same stored inputs, and has "
    "the same bits in every run; nondet.: as right, with other bits in some runs; refused: the implementation itself "
    f"says that it does not support the case; -: not tried. {figures.LEGEND}."
)


def render(found: Sequence[Outcome]) -> list[str]:
    """The parts of the section."""
    parts = ["## Outcomes", ABOUT]
    for norm in norms(found):
        parts += [f"### {norm}", *_norm(norm, found)]
    return [*parts, "### What the inputs are there to find", _kinds(found)]


def cell(outcome: Outcome | None) -> str:
    """The outcome in a word, with the mark of its class where it passed."""
    if outcome is None:
        return figures.NOTHING
    if outcome.status == "wrong":
        return f"**{WORDS['wrong']}**"
    mark = figures.EXTRA_ROUNDINGS[outcome.checked.error_class or "exact"] if outcome.status in RANKED else ""
    return WORDS[outcome.status] + mark


def _norm(norm: Norm, found: Sequence[Outcome]) -> list[str]:
    of = {(outcome.case, outcome.impl): outcome for outcome in found if outcome.case.norm == norm}
    named = labels([case for case, _ in of])
    impls = list(dict.fromkeys(outcome.impl for outcome in of.values() if outcome.status != "missing"))
    rows = [[label, *(cell(of.get((case, impl))) for impl in impls)] for case, label in named.items()]
    return [f"Dtypes are {usual(list(named))} where nothing else is said.", table(["inputs", *impls], rows)]


def _kinds(found: Sequence[Outcome]) -> str:
    wrong = {
        name: dict.fromkeys(each.impl for each in found if each.case.inputs == name and each.status == "wrong")
        for name in KINDS
    }
    used = {outcome.case.inputs for outcome in found}
    rows = [
        [name, kind.finds, ", ".join(wrong[name]) or figures.NOTHING] for name, kind in KINDS.items() if name in used
    ]
    return table(["kind", "what it is there to find", "wrong on it"], rows)
