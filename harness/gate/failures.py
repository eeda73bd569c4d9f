"""Failures of speed, and what becomes of them once they were measured again: pure functions of verdicts and results.

What both runs show has REGRESSED. What the first alone shows is INCONCLUSIVE, and never passes: two runs that disagree
are no proof of anything. A status (wrong, crashed, other bits) is not a matter of chance, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from harness.cases import NormCase
from harness.gate.judge import judge_one
from harness.gate.limits import Claim, Regression
from harness.gate.verdicts import Verdict
from harness.results.file import Results


def of_speed(verdict: Verdict) -> bool:
    """Whether it is REGRESSED for what was timed, so that timing again can tell more."""
    return verdict.outcome == "REGRESSED" and (verdict.ratio is not None or verdict.loss is not None)


def cases_behind(verdicts: Sequence[Verdict]) -> list[NormCase]:
    """The cases that the failures of speed were timed on, each once; of a geometric mean all that it was taken over."""
    failed = [verdict for verdict in verdicts if of_speed(verdict)]
    return list(dict.fromkeys(case for failure in failed for case in _cases(failure, verdicts)))


def names_behind(verdicts: Sequence[Verdict]) -> list[str]:
    """The implementations that the limits behind the failures of speed are about, each once."""
    return list(dict.fromkeys(name for verdict in verdicts if of_speed(verdict) for name in verdict.claim.names))


def confirmed(verdicts: Sequence[Verdict], again: Results) -> list[Verdict]:
    """The verdicts, each failure of speed held against a second run of its cases.

    The tests of the second run are looked at together as those of the first were, but over the cases that failed alone:
    the others were not asked again, and add no chance of a false discovery.
    """
    failed = [verdict for verdict in verdicts if of_speed(verdict)]
    found: dict[tuple[Claim | Regression, NormCase | None], Verdict] = {}
    for limit in dict.fromkeys(verdict.claim for verdict in failed):
        of_limit = [failure for failure in failed if failure.claim == limit]
        cells = {failure.case for failure in of_limit if failure.case is not None}
        found |= {(limit, each.case): each for each in _judged(limit, again, cells) if each.case is not None}
        for mean in (failure for failure in of_limit if failure.case is None):
            over = _judged(limit, again, _cases(mean, verdicts))
            found |= {(limit, each.case): each for each in over if each.case is None}
    return [_held(each, found.get((each.claim, each.case))) if of_speed(each) else each for each in verdicts]


def _cases(failure: Verdict, verdicts: Sequence[Verdict]) -> list[NormCase]:
    if failure.case is not None:
        return [failure.case]
    return [each.case for each in verdicts if each.claim == failure.claim and each.case is not None and each.loss]


def _judged(limit: Claim | Regression, results: Results, cases: Collection[NormCase]) -> list[Verdict]:
    """The verdicts on these cases alone."""
    return judge_one(replace(results, rows=[row for row in results.rows if row.case in cases]), limit) if cases else []


def _held(first: Verdict, second: Verdict | None) -> Verdict:
    """The first verdict after the second was heard; its figures stay the first run's."""
    if second is None or second.outcome != "REGRESSED":
        return replace(first, outcome="INCONCLUSIVE", reason=f"not confirmed: {_told(first)}, then {_told(second)}")
    how = "confirmed" if of_speed(second) else "measured again"
    return replace(first, reason=f"{first.reason}; {how}: {_told(second)}")


def _told(verdict: Verdict | None) -> str:
    """The figures behind a verdict, or why there are none."""
    if verdict is None:
        return "not measured"
    return str(verdict.loss) if verdict.loss else verdict.reason
