"""Judges a results file by its limits: a pure function from results and limits to verdicts.

A limit is on a ratio measured in one run, inside the same blocks, never on a time: times from another machine mean
nothing here. An implementation that is wrong or not deterministic fails before any speed is judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from harness.analysis.joining import JoinedCase, by_case, untested
from harness.analysis.verdicts import Verdict
from harness.cases import NormCase
from harness.errors import UsageError, name_hint
from harness.gate.claims import judge_claim
from harness.gate.limits import Claim, Limits, Regression
from harness.gate.regressions import judge_regression
from harness.records.contexts import HOST
from harness.records.file import Results
from harness.records.reasons import Reason


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
    for name in (name for limit in here.values() for name in limit.needed):
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
    by_reason: dict[str, list[str]] = {}
    for limit in absent:
        is_here = limit.applies_to(results.run.device.profile)
        by_reason.setdefault("not measured in this run" if is_here else "of another device", []).append(
            limit.subject.words
        )
    return {why: list(dict.fromkeys(words)) for why, words in by_reason.items()}


def join_contexts(results: Results, limits: Iterable[Claim | Regression]) -> dict[str, dict[NormCase, JoinedCase]]:
    """The joined cases of every context that these limits are about, each context once.

    Raises UsageError where the run did not measure a context, unless all limits on it are `where_measured`.
    """
    optional = [limit.context for limit in limits if isinstance(limit, Claim) and limit.where_measured]
    needed = [limit.context for limit in limits if not (isinstance(limit, Claim) and limit.where_measured)]
    contexts = dict.fromkeys([*needed, *(context for context in optional if context in results.contexts)])
    untested_cases = {row.case for row in untested(results)["before"] if row.case.device == "cuda"}
    joined_by_context = {context: by_case(results.in_context(context)) for context in contexts}
    for context, cases in joined_by_context.items():
        for case, joined in cases.items():
            joined.find_incomplete(results.run.settings.processes)
            if context != HOST and case in untested_cases:
                joined.interference = joined.interference or Reason("selftest_missing")
    return joined_by_context


def judge_one(cases: Mapping[NormCase, JoinedCase] | None, limit: Claim | Regression) -> list[Verdict]:
    """A verdict for one limit on each of these cases that it fits, and a regression's on the geometric mean."""
    if cases is None:  # the run did not measure the context
        return []
    return judge_claim(cases, limit) if isinstance(limit, Claim) else judge_regression(cases, limit)


def _refuse_unfinished(results: Results) -> None:
    """Raise UsageError for an interrupted run: the gate would pass cases that were never measured."""
    cases, end, run = results.finished_cases, results.end, results.run
    go_on = f"`{run.resuming('FOLDER')}`"
    if end is None and cases == run.jobs:
        raise UsageError(f"gate: every case is here, but the file's last record is missing; {go_on} writes it")
    if end is None or end.interrupted or cases < run.jobs:
        raise UsageError(f"gate: the run is not finished, {cases} of {run.jobs} cases are here; {go_on} goes on")
