"""A results file as a comparison: data without text. Every format writes a comparison and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from harness.analysis.case_comparison import CaseComparison, compare_case
from harness.analysis.device_state import DeviceState, GpuUse, device_state, gpu_uses
from harness.analysis.joining import by_case
from harness.analysis.summary import Summary, summarise
from harness.errors import UsageError
from harness.records.contexts import COLD, FWD_BWD
from harness.records.file import Results
from harness.records.reasons import Reason
from harness.records.run_records import EndRecord, RunRecord
from harness.records.schema import Budget, HolderRecord, SanitizerRecord, SelfTestRecord


@dataclass(frozen=True, eq=False)
class Comparison:
    """One context of a results file; `unfinished` says what is missing from it, `timed` whether any row has a time.

    `budget` is the engine's own error by the worst of `selftests`, `state` sums up the device's readings, `gpus` are
    those of a fleet, and `holder` is the kernel that ran beside the backwards. The comparison of the cold context has
    those of the other contexts in `contexts`.
    """

    run: RunRecord
    baseline: str
    timed: bool
    unfinished: Reason | None
    cases: tuple[CaseComparison, ...]
    summary: Summary
    budget: Budget | None
    selftests: tuple[SelfTestRecord, ...]
    state: DeviceState
    end: EndRecord | None
    gpus: tuple[GpuUse, ...]
    sanitized: tuple[SanitizerRecord, ...]
    context: str = COLD
    holder: HolderRecord | None = None
    contexts: tuple[Comparison, ...] = ()


def compare(results: Results, baseline: str | None = None, context: str = COLD) -> Comparison:
    """Compare every implementation with the baseline (by default the run's own), case by case.

    Of several rows of one (case, implementation, role, process) the last counts, as a resumed run appends; the rows of
    several processes are one entry. Raises UsageError where the file has no such baseline, or no such context.
    """
    others = [other for other in results.contexts if other != COLD] if context == COLD else []
    contexts = tuple(compare(results, baseline, other) for other in others)
    results = results.in_context(context)
    names = _names(results)
    if baseline is not None and baseline not in names:
        raise UsageError(f"no implementation {baseline!r} in these results; --baseline can be: {', '.join(names)}")
    base = baseline or results.run.settings.baseline
    moves = context != FWD_BWD
    cases = tuple(compare_case(case, joined, results, base, moves) for case, joined in by_case(results).items())
    return Comparison(
        run=results.run,
        baseline=base,
        timed=any(entry.median_us is not None for case in cases for entry in case.entries),
        unfinished=_unfinished(results),
        cases=cases,
        summary=summarise(cases, base),
        budget=results.budget,
        selftests=tuple(results.selftests),
        state=device_state(results.conditions),
        end=results.end,
        context=context,
        holder=next((record.holder for record in results.conditions if record.holder), None),
        contexts=contexts,
        gpus=gpu_uses(results),
        sanitized=tuple(results.sanitized),
    )


def _names(results: Results) -> list[str]:
    names = [impl.name for impl in results.run.implementations]
    return list(dict.fromkeys(names + [row.impl for row in results.rows if row.role == "impl"]))


def _unfinished(results: Results) -> Reason | None:
    if results.end is not None and results.end.interrupted:
        why = "interrupted"
    elif results.end is None:
        why = "cut_short"
    elif results.finished_cases < results.run.jobs:
        why = "others_not_measured"
    else:
        return None
    fields = {"finished": results.finished_cases, "jobs": results.run.jobs}
    return Reason("unfinished", fields, [Reason(why)])
