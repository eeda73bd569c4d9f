"""Why nothing is called fastest on a case, in a sentence."""

from __future__ import annotations

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.entries import ONLY_SHOWN, Entry


def no_fastest(case: CaseComparison) -> str:
    """A sentence on a case without a lead: what keeps the fastest from being named."""
    if case.interference:
        return f"Nothing is ranked: {case.interference}."
    unranked = case.of("unranked")
    decisive = [entry for entry in unranked if entry.too_short or entry.disturbed] or unranked
    return f"Nothing is called fastest, because {_why(decisive[0])}." if decisive else "Not timed."


def _why(entry: Entry) -> str:
    """A clause: the reasons of entries begin with a noun, with an adjective, or with the number of a process."""
    reason = entry.reason or "no reason given"
    if reason.endswith(ONLY_SHOWN):
        return f"{entry.impl} is too fast to be ranked, {reason.removesuffix(ONLY_SHOWN)}"
    return f"{entry.impl} is not ranked ({reason})" if ": " in reason else f"{entry.impl} is not ranked: {reason}"
