"""Whether gradients repeat bit for bit: the number of repetitions, and under which conditions."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import get_args

from harness.analysis.checks import NEW_PROCESS, Checked, Runs, add_up
from harness.analysis.outcomes import Outcome, by_impl, norms
from harness.records.reason_texts import sentence
from harness.records.schema import RANKED, Condition
from reports import figures
from reports.labels import determinism
from reports.table import Cell, Section, Table, left, table

CONDITIONS = (*get_args(Condition), NEW_PROCESS)
NEWEST: Condition = "held multiprocessors"  # earlier files do not have it
RULE_OF_THREE = 3.0  # no change in n comparisons: at 95 % a run changes with a probability below 3 / n
ABOUT = (
    "`same bits in 300 runs`: 300 runs on each of these cases, compared bit by bit with the first; no change in 299 "
    "comparisons bounds the probability that a run of such a case differs by 3/299 at 95 %. Among the n are the runs "
    "under conditions, which the columns to the right count over all these cases together; runs in a new process, "
    "compared by their fingerprints, are beside the n. Where an implementation is nondeterministic, the runs of the "
    "cases in which it is are counted together."
)
ABOUT_INVARIANCE = (
    "Reported, not judged: whether a gradient keeps its bits when what should not matter to it changes. Other bits are "
    "no error: a sum in another order is as right as the first."
)


def section(outcomes: Sequence[Outcome]) -> Section | None:
    """How often bits were the same; implementations that did not pass are left out."""
    passed = _passed(outcomes)
    shown = [outcome for outcome in passed if outcome.normal or _unsteady(outcome.checked)] or passed
    names = [name for name in CONDITIONS if name != NEWEST or any(name in o.checked.conditions for o in shown)]
    rows = [
        [norm, impl, *_cells(group, names)]
        for norm in norms(shown)
        for impl, of_impl in by_impl(outcome for outcome in shown if outcome.case.norm == norm).items()
        for group in _groups(of_impl)
    ]
    if not rows:
        return None
    headings = [*left("norm", "impl", "determinism"), "cases", "a run differs, 95 %", *names]
    parts: list[str | Table | Section] = [ABOUT, table(headings, rows)]
    if unusual := [outcome.checked.repeats for outcome in passed if outcome not in shown]:  # fewer: these test values
        results = figures.count(len(unusual), "result")
        parts.append(f"On the other kinds of inputs {results} kept their bits over {min(unusual)} runs or more each.")
    return Section("Determinism", (*parts, *_invariance(passed)))


def level(checks: Sequence[Checked]) -> str:
    """The determinism in words, for checks of one group; the runs of those that differ are summed."""
    unsteady = [checked for checked in checks if checked.differing]
    if not unsteady:
        text = determinism(checks[0])
        return f"nondeterministic ({text})" if checks[0].moved else text
    together = sum((Runs(checked.repeats, checked.differing, checked.differing_in) for checked in unsteady), Runs())
    return f"nondeterministic ({_differ(together)})"


def bound(comparisons: int) -> float | None:
    """The upper bound (95 %) of the probability that a run differs, where no comparison did; None where it is 1."""
    return RULE_OF_THREE / comparisons if comparisons > RULE_OF_THREE else None


def bound_text(comparisons: int) -> str:
    """The bound in percent, `< 1 %`."""
    probability = bound(comparisons)
    return figures.NOTHING if probability is None else f"< {figures.two_digits(100 * probability)} %"


def in_short(outcomes: Sequence[Outcome]) -> str:
    """The determinism of one implementation, by the cases with differing bits, or else by those with the most runs."""
    checked = [outcome for outcome in _passed(outcomes) if _unsteady(outcome.checked) or outcome.checked.repeats]
    if not checked:
        return figures.NOTHING
    first, *others = _groups(checked)
    where = f" on {len(first)} of {figures.count(len(checked), 'case')}" if others else ""
    limit = bound(_compared(first))
    differ = f"; at 95 % fewer than {figures.two_digits(100 * limit)} % of runs differ" if limit else ""
    return level([outcome.checked for outcome in first]) + where + differ


def _passed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.status in RANKED]


def _groups(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Outcomes of one level together: those that differ first, then the ones with the most runs."""

    def level_of(outcome: Outcome) -> int:
        return -sys.maxsize if _unsteady(outcome.checked) else -outcome.checked.repeats

    return [list(group) for _, group in groupby(sorted(outcomes, key=level_of), key=level_of)]


def _unsteady(checked: Checked) -> bool:
    return bool(checked.differing or checked.moved)


def _compared(outcomes: Sequence[Outcome]) -> int:
    """The fewest comparisons of a case; 0 where any differed."""
    return 0 if _unsteady(outcomes[0].checked) else min(outcome.checked.compared for outcome in outcomes)


def _cells(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[str | Cell]:
    checks = [outcome.checked for outcome in outcomes]
    conditions = add_up([checked.conditions for checked in checks])
    compared = _compared(outcomes)
    limit = Cell(bound_text(compared), bound(compared))
    return [level(checks), str(len(outcomes)), limit, *(_condition(conditions, name) for name in names)]


def _condition(conditions: Mapping[str, Runs], name: str) -> str:
    runs = conditions.get(name, Runs())
    if runs.differing:
        return _differ(runs)
    if runs.runs:
        return f"same ({runs.runs})" + (f", not run on {len(runs.skipped)}" if runs.skipped else "")
    return f"not run: {figures.one_line(runs.skipped[0], 40)}" if runs.skipped else "not run"


def _differ(runs: Runs) -> str:
    where = f", in {', '.join(runs.differing_in)}" if runs.differing_in else ""
    return f"{runs.differing} of {runs.runs} differ{where}"


def _invariance(outcomes: Sequence[Outcome]) -> list[Section]:
    changes = list(dict.fromkeys(change for outcome in outcomes for change in outcome.checked.invariance))
    rows = [
        [norm, impl, *(_texts(of_impl, change) for change in changes)]
        for norm in norms(outcomes)
        for impl, of_impl in by_impl(outcome for outcome in outcomes if outcome.case.norm == norm).items()
        if any(outcome.checked.invariance for outcome in of_impl)
    ]
    if not rows:
        return []
    return [Section("When something else changes", (ABOUT_INVARIANCE, table([*left("norm", "impl"), *changes], rows)))]


def _texts(outcomes: Sequence[Outcome], change: str) -> str:
    """The finding of all cases, or each finding with the number of its cases."""
    findings = (finding for outcome in outcomes for finding in outcome.checked.invariance.get(change, ()))
    counts = Counter(map(sentence, findings))
    if len(counts) > 1:
        return ", ".join(f"{text} in {number}" for text, number in counts.items())
    return next(iter(counts), figures.NOTHING)
