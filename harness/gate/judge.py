"""Judges a results file by its limits: a pure function from results and limits to verdicts.

A limit is on a ratio measured in one run, inside the same blocks, never on a time: times from another machine mean
nothing here. An implementation that is wrong or not deterministic fails before any speed is judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from harness.analysis.joining import Joined, JoinedCase, band, by_case, comparable, impl_is, ratio, untested
from harness.analysis.statistics import IncomparableError, Ratio
from harness.analysis.verdicts import Outcome, Verdict
from harness.cases import NormCase
from harness.errors import UsageError, name_hint
from harness.gate.limits import Claim, Limits, Regression
from harness.gate.regressions import judge_regression
from harness.grouping import grouped
from harness.records.contexts import HOST
from harness.records.file import Results
from harness.records.reasons import Reason
from harness.records.schema import NOT_RUN, RANKED


def only(files: Sequence[Results]) -> Results:
    """The one run to judge; raises UsageError for several files, because no ratio spans two runs."""
    if len(files) == 1:
        return files[0]
    devices = list(dict.fromkeys(results.run.device.name for results in files))
    subject = f"results of {len(devices)} devices ({', '.join(devices)})" if len(devices) > 1 else f"{len(files)} files"
    raise UsageError(f"gate: {subject}; a ratio is of one run on one device, so give one file at a time")


def judge(results: Results, limits: Limits) -> list[Verdict]:
    """A verdict for each limit on each case that it fits.

    Raises UsageError for an interrupted run, for an implementation that is not in the results, and where they have
    nothing that any limit is about.
    """
    _refuse_unfinished(results)
    measured = sorted({row.impl for row in results.rows if row.role == "impl"})
    here = {n: limit for n, limit in enumerate(limits.all) if limit.applies_to(results.run.device.profile)}
    for name in (name for limit in here.values() for name in (limit.names[:1] if _is_optional(limit) else limit.names)):
        if name not in measured:
            hint = name_hint(name, measured, "there are")
            raise UsageError(f"gate: no implementation {name!r} in these results; {hint}")
    contexts = join_contexts(results, here.values())
    verdicts = [
        replace(verdict, subject=replace(verdict.subject, number=number))
        for number, limit in here.items()
        for verdict in judge_one(contexts.get(limit.context), limit)
    ]
    if not verdicts:
        raise UsageError("gate: this run measured nothing that any of the limits is about; give another file")
    return verdicts


def not_judged(results: Results, limits: Limits, verdicts: Sequence[Verdict]) -> dict[str, list[str]]:
    """In words, the limits that have no verdict, by why: of what the run did not measure, or of another device."""
    judged = {verdict.subject.number for verdict in verdicts}
    absent = [limit for number, limit in enumerate(limits.all) if number not in judged]
    whys = ("of another device", "not measured in this run")
    by_reason = grouped((whys[limit.applies_to(results.run.device.profile)], limit.subject.words) for limit in absent)
    return {why: list(dict.fromkeys(words)) for why, words in by_reason.items()}


def join_contexts(results: Results, limits: Iterable[Claim | Regression]) -> dict[str, dict[NormCase, JoinedCase]]:
    """The joined cases of every context that these limits are about, each context once.

    Raises UsageError where the run did not measure a context, unless all limits on it are `where_measured`.
    """
    contexts = sorted({each.context for each in limits if not _is_optional(each) or each.context in results.contexts})
    untested_cases = {row.case for row in untested(results)["before"] if row.case.device == "cuda"}
    joined_by_context = {context: by_case(results.in_context(context)) for context in contexts}
    for context, cases in joined_by_context.items():
        for case, joined in cases.items():
            joined.find_incomplete(results.run.settings.processes)
            if context != HOST and case in untested_cases:
                joined.interference = joined.interference or Reason("selftest_missing")
    return joined_by_context


def _is_optional(limit: Claim | Regression) -> bool:
    return isinstance(limit, Claim) and limit.where_measured


def judge_one(cases: Mapping[NormCase, JoinedCase] | None, limit: Claim | Regression) -> list[Verdict]:
    """A verdict for one limit on each of these cases that it fits, and a regression's on the geometric mean."""
    if cases is None:  # the run did not measure the context
        return []
    return _judge_claim(cases, limit) if isinstance(limit, Claim) else judge_regression(cases, limit)


def _judge_claim(cases: Mapping[NormCase, JoinedCase], claim: Claim) -> list[Verdict]:
    """A verdict on each case that the claim selects; a claim that selects no measured case is an ERROR.

    A claim `where_measured` leaves out the cases that have no time to compare with, and may have no verdict.
    """
    judged = (_judge_case(case, joined, claim) for case, joined in claim.measured(cases).items())
    verdicts = [verdict for verdict in judged if verdict is not None]
    if verdicts or claim.where_measured:
        return verdicts
    return [Verdict(claim.subject, None, "ERROR", Reason("no_case_fits_claim"))]


def _judge_case(case: NormCase, joined: JoinedCase, claim: Claim) -> Verdict | None:
    mine, measured = joined.get((claim.impl, "impl")), None
    was_tried = mine is not None and mine.status not in NOT_RUN
    if mine is not None and was_tried and mine.status not in (("ok",) if claim.deterministic else RANKED):
        outcome, reason = "REGRESSED", impl_is(claim.impl, mine)
    elif claim.where_measured and _has_no_time(joined, claim):
        return None
    elif mine is None or not was_tried:
        outcome, reason = "ERROR", impl_is(claim.impl, mine, "not_measured")
    elif missing := joined.incomplete.get(claim.impl):
        outcome, reason = "INCONCLUSIVE", Reason("of_impl", {"impl": claim.impl}, [missing])
    elif claim.over is None:
        outcome, reason = "PASS", Reason("right_and_deterministic" if claim.deterministic else "right")
    else:
        outcome, reason, measured = _judge_speed(mine, joined, claim, claim.over)
    return Verdict(claim.subject, case, outcome, reason, measured)


def _judge_speed(mine: Joined, joined: JoinedCase, claim: Claim, over: str) -> tuple[Outcome, Reason, Ratio | None]:
    try:
        measured = ratio(joined.get((over, "impl")), mine)
    except IncomparableError as error:
        return "ERROR", Reason("no_ratio", parts=[error.reason]), None
    if reason := joined.no_verdict_reason(claim.impl, over):
        return "INCONCLUSIVE", reason, measured
    return *_judge_ratio(claim, measured, band(joined, over)), measured


def _has_no_time(joined: JoinedCase, claim: Claim) -> bool:
    """Whether a case has nothing to compare with, or what is claimed of was not tried or was too fast to be ranked."""
    mine = joined.get((claim.impl, "impl"))
    if claim.over is None:
        return mine is None or mine.status in NOT_RUN
    try:
        comparable(joined.get((claim.over, "impl")))
    except IncomparableError:
        return True
    return mine is not None and mine.too_short is not None


def _judge_ratio(claim: Claim, ratio: Ratio, aa: float | None) -> tuple[Outcome, Reason]:
    """Pass or fail only where the interval, widened by the A/A band, lies on one side of what is claimed."""
    if aa is None:
        return "INCONCLUSIVE", Reason("no_aa_pair")
    low, high = ratio.low * math.exp(-aa), ratio.high * math.exp(aa)
    fields = {"ratio": ratio.value, "over": claim.over or "", "low": low, "high": high}
    reason = Reason("times_as_fast", fields)
    if low >= claim.at_least:
        return "PASS", reason
    return "REGRESSED" if high < claim.at_least else "INCONCLUSIVE", reason


def _refuse_unfinished(results: Results) -> None:
    """Raise UsageError for an interrupted run: the gate would pass cases that were never measured."""
    cases, end, run = results.finished_cases, results.end, results.run
    go_on = f"`{run.resuming('FOLDER')}`"
    if end is None and cases == run.jobs:
        raise UsageError(f"gate: every case is here, but the file's last record is missing; {go_on} writes it")
    if end is None or end.interrupted or cases < run.jobs:
        raise UsageError(f"gate: the run is not finished, {cases} of {run.jobs} cases are here; {go_on} goes on")
