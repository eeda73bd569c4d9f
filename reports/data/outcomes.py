"""What became of every implementation on every case, over all files and processes that tried it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.cases import Norm, NormCase
from harness.results.file import Results
from harness.results.joining import GRAVEST_FIRST, Joined, by_case
from harness.results.schema import ImplRecord, RunRecord, Status
from reports import figures
from reports.data.checks import Checked, join_files, join_verifications
from reports.data.comparison import Comparison

FAILED: tuple[Status, ...] = ("wrong", "crashed", "timeout", "oom")
NOT_RUN: tuple[Status, ...] = ("missing", "unsupported")
WORDS: dict[Status, str] = {
    "ok": "right",
    "nondeterministic": "nondet.",
    "unsupported": "refused",
    "wrong": "wrong",
    "crashed": "crashed",
    "timeout": "timeout",
    "oom": "oom",
    "missing": figures.NOTHING,
}


@dataclass(frozen=True)
class Outcome:
    """One implementation on one case: the gravest status that was found, why, and what was checked."""

    case: NormCase
    impl: str
    status: Status
    reason: str | None
    checked: Checked

    @property
    def normal(self) -> bool:
        """Whether its inputs were the usual ones."""
        return self.case.inputs == "normal"


def outcomes(runs: Sequence[Results]) -> list[Outcome]:
    """The outcomes of these files, case by case; where several have the same, the worst outcome wins.

    Of files of different revisions the one that was started last replaces what the others say of the same
    implementation on the same case. A file in which an implementation was not installed says nothing of it where
    another tried it.
    """
    found: dict[tuple[NormCase, str], list[tuple[RunRecord, Joined]]] = {}
    for run in runs:
        for case, rows in by_case(run).items():
            for (impl, role), joined in rows.items():
                if role == "impl":
                    found.setdefault((case, impl), []).append((run.run, joined))
    implementations = [impl for run in runs for impl in run.run.implementations]
    return _in_order([_outcome(_latest(of)) for of in found.values()], implementations)


def of_comparison(comparison: Comparison) -> list[Outcome]:
    """The outcomes of one file that has been compared already."""
    found = [
        Outcome(case.case, entry.impl, entry.status, entry.reason, entry.checked)
        for case in comparison.cases
        for entry in case.entries
    ]
    return _in_order(found, comparison.run.implementations)


def norms(found: Iterable[Outcome]) -> list[Norm]:
    """The norms of these outcomes, in their order."""
    return list(dict.fromkeys(outcome.case.norm for outcome in found))


def by_impl(found: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each implementation."""
    impls: dict[str, list[Outcome]] = {}
    for outcome in found:
        impls.setdefault(outcome.impl, []).append(outcome)
    return impls


def tried(found: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each implementation that ran on any case."""
    return {impl: of for impl, of in by_impl(found).items() if any(outcome.status not in NOT_RUN for outcome in of)}


def tally(found: Iterable[Outcome]) -> Counter[Status]:
    """How many there are of each status."""
    return Counter(outcome.status for outcome in found)


def _in_order(found: Sequence[Outcome], implementations: Iterable[ImplRecord]) -> list[Outcome]:
    """Case by case as they come, and within a case as the run knows its implementations."""
    named = dict.fromkeys([*(impl.name for impl in implementations), *(outcome.impl for outcome in found)])
    cases = {case: place for place, case in enumerate(dict.fromkeys(outcome.case for outcome in found))}
    names = {name: place for place, name in enumerate(named)}
    return sorted(found, key=lambda outcome: (cases[outcome.case], names[outcome.impl]))


def _latest(found: Sequence[tuple[RunRecord, Joined]]) -> list[Joined]:
    """Those of the revision that was run last, of all that tried it; all of them where nobody did."""
    tried = [(run, joined) for run, joined in found if joined.status != "missing"] or found
    last, _ = max(tried, key=lambda each: each[0].started_at)
    return [joined for run, joined in tried if run.revision == last.revision]


def _outcome(found: Sequence[Joined]) -> Outcome:
    status = min(found, key=lambda joined: GRAVEST_FIRST.index(joined.status)).status
    reasons = dict.fromkeys(joined.reason for joined in found if joined.status == status and joined.reason)
    return Outcome(
        case=found[0].case,
        impl=found[0].impl,
        status=status,
        reason="; ".join(reasons) or None,
        checked=join_files([_checked(joined) for joined in found]),
    )


def _checked(joined: Joined) -> Checked:
    return join_verifications([row.verification for row in joined.rows if row.verification])
