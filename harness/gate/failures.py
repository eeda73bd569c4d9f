"""Failures of speed and their verdicts after a second measurement: pure functions of verdicts and results.

A failure in both runs is REGRESSED. A failure in the first run alone is INCONCLUSIVE and does not pass, as two runs
that disagree prove nothing. A status (wrong, crashed, other bits) is not a matter of chance and is not measured again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.analysis.verdicts import Verdict
from harness.cases import NormCase
from harness.gate.judge import join_contexts, judge_one
from harness.gate.limits import Limits
from harness.records.file import Results
from harness.records.reasons import Reason


def cases_behind(verdicts: Sequence[Verdict]) -> list[NormCase]:
    """The cases of the failures of speed, each once; a geometric mean counts with all of its cases."""
    failed = [verdict for verdict in verdicts if verdict.for_speed]
    return list(dict.fromkeys(case for failure in failed for case in _cases(failure, verdicts)))


def names_behind(verdicts: Sequence[Verdict]) -> list[str]:
    """The implementations that the limits behind the failures of speed are about, each once."""
    return list(dict.fromkeys(name for verdict in verdicts if verdict.for_speed for name in verdict.subject.names))


def confirmed(verdicts: Sequence[Verdict], limits: Limits, again: Results) -> list[Verdict]:
    """The verdicts on a first run, with each failure of speed compared with a second run of its cases.

    p-values of the second run are adjusted over the failed cases only: the others were not measured again and cannot
    be false discoveries.
    """
    failed = [verdict for verdict in verdicts if verdict.for_speed]
    contexts = join_contexts(again, [limits.all[verdict.subject.number] for verdict in failed])
    second: dict[tuple[int, NormCase | None], Verdict] = {}
    for number, is_mean in dict.fromkeys((verdict.subject.number, verdict.case is None) for verdict in failed):
        failures = [each for each in failed if (each.subject.number, each.case is None) == (number, is_mean)]
        cases = {case for failure in failures for case in _cases(failure, verdicts)}
        limit = limits.all[number]
        measured_again = {case: joined for case, joined in contexts[limit.context].items() if case in cases}
        for verdict in judge_one(measured_again, limit):
            if (verdict.case is None) == is_mean:
                second[number, verdict.case] = verdict
    return [
        _after_second(verdict, second.get((verdict.subject.number, verdict.case))) if verdict.for_speed else verdict
        for verdict in verdicts
    ]


def _cases(failure: Verdict, verdicts: Sequence[Verdict]) -> list[NormCase]:
    if failure.case is not None:
        return [failure.case]
    same_limit = [verdict for verdict in verdicts if verdict.subject == failure.subject]
    return [verdict.case for verdict in same_limit if verdict.case is not None and verdict.loss]


def _after_second(first: Verdict, second: Verdict | None) -> Verdict:
    """The first verdict, changed by the second; its figures stay the first run's."""
    if second is None or second.outcome != "REGRESSED":
        return replace(
            first, outcome="INCONCLUSIVE", reason=Reason("not_confirmed", parts=[_figures(first), _figures(second)])
        )
    how = "confirmed" if second.for_speed else "measured_again"
    return replace(first, reason=Reason(how, parts=[first.reason, _figures(second)]))


def _figures(verdict: Verdict | None) -> Reason:
    """The figures behind a verdict, or why there are none."""
    if verdict is None:
        return Reason("not_measured_again")
    loss = verdict.loss
    return Reason("loss", {"speedup": loss.speedup, "low": loss.low, "high": loss.high}) if loss else verdict.reason
