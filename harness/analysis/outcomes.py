"""The outcome of every implementation on every case, over all files and processes that ran it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.analysis.checks import Checked, join_files, join_verifications
from harness.analysis.comparison import Comparison
from harness.analysis.joining import GRAVEST_FIRST, Joined
from harness.cases import Norm, NormCase
from harness.grouping import grouped
from harness.records.reasons import Reason, together
from harness.records.run_records import RunRecord
from harness.records.schema import NOT_RUN, Status


@dataclass(frozen=True)
class Outcome:
    """One implementation on one case: its gravest status, the reason, and the checks."""

    case: NormCase
    impl: str
    status: Status
    reason: Reason | None
    checked: Checked

    @property
    def normal(self) -> bool:
        """Whether its inputs were the usual ones."""
        return self.case.inputs == "normal"


def join_outcomes(runs: Sequence[Comparison]) -> list[Outcome]:
    """The outcomes of these files, case by case; where several have the same, the worst outcome wins.

    Where files of different revisions ran the same implementation on the same case, the file that was started last
    counts. A file in which the implementation was not installed does not count where another file ran it.
    """
    results: dict[NormCase, dict[str, list[tuple[RunRecord, Joined]]]] = {}
    for comparison in runs:
        for case in comparison.cases:
            for impl, joined in case.joined.impls.items():
                results.setdefault(case.case, {}).setdefault(impl, []).append((comparison.run, joined))
    named = dict.fromkeys(impl.name for comparison in runs for impl in comparison.run.implementations)
    named |= dict.fromkeys(impl for of_case in results.values() for impl in of_case)
    return [_outcome(_latest(of_case[impl])) for of_case in results.values() for impl in named if impl in of_case]


def norms(outcomes: Iterable[Outcome]) -> list[Norm]:
    """The norms of these outcomes, in their order."""
    return list(dict.fromkeys(outcome.case.norm for outcome in outcomes))


def by_impl(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each implementation."""
    return grouped((outcome.impl, outcome) for outcome in outcomes)


def tried(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each implementation that ran on any case."""
    return {
        impl: of_impl
        for impl, of_impl in by_impl(outcomes).items()
        if any(outcome.status not in NOT_RUN for outcome in of_impl)
    }


def tally(outcomes: Iterable[Outcome]) -> Counter[Status]:
    """The number of outcomes of each status."""
    return Counter(outcome.status for outcome in outcomes)


def _latest(results: Sequence[tuple[RunRecord, Joined]]) -> list[Joined]:
    """The results of the revision that ran last; results `missing` count only where there are no others."""
    tried = [(run, joined) for run, joined in results if joined.status != "missing"] or results
    last, _ = max(tried, key=lambda result: result[0].started_at)
    return [joined for run, joined in tried if run.revision == last.revision]


def _outcome(results: Sequence[Joined]) -> Outcome:
    status = min(results, key=lambda joined: GRAVEST_FIRST.index(joined.status)).status
    reasons = dict.fromkeys(joined.reason for joined in results if joined.status == status and joined.reason)
    verifications = [[row.verification for row in joined.rows if row.verification] for joined in results]
    checked = join_files([join_verifications(of_file) for of_file in verifications])
    return Outcome(results[0].case, results[0].impl, status, together(tuple(reasons)), checked)
