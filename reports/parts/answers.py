"""The answer of a run in a sentence: who is fastest in how many cases, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import Outcome, join_outcomes, tally, tried
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.records.schema import FAILED, RANKED, Status
from reports import figures
from reports.labels import counted_label, first_word
from reports.parts.caveats import context_named, interference, nothing_ranked

HOW: dict[Status, str] = {
    "ok": "right on",
    "nondeterministic": "nondeterministic on",
    "unsupported": "refuses",
    "wrong": "wrong on",
    "impossible": "impossibly fast on",
    "crashed": "crashed on",
    "timeout": "timed out on",
    "oom": "out of memory on",
}


def headline(comparison: Comparison, impl: str | None = None) -> str:
    """In how many cases `impl`, or the implementation that wins most, is fastest, and its speedup over the baseline."""
    if not comparison.timed:
        return verified(join_outcomes([comparison]))
    text, subject = fastest(comparison, impl)
    means = geomeans(comparison, subject) if subject else ""
    sentences = (correctness(comparison, impl), revisions(comparison), context_named(comparison) + text, means)
    return " ".join(filter(None, sentences))


def counts(comparison: Comparison, impl: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """In how many of the cases that it ran on an implementation was right, and in how many of these the same bits.

    Cases that it refused are not counted.
    """
    entries = [case.entry(impl) for case in comparison.cases]
    ran = [entry for entry in entries if entry and entry.standing != "absent"]
    right = [entry for entry in ran if entry.status in RANKED]
    same = sum(entry.other_bits is None and bool(entry.checked.repeats) for entry in right)
    return (len(right), len(ran)), (same, len(right))


def correctness(comparison: Comparison, impl: str | None = None) -> str:
    """How often `impl` was right with the same bits, or how many implementations always were; then what failed."""
    names = dict.fromkeys(entry.impl for case in comparison.cases for entry in case.entries)
    known = {name: found for name in names if (found := counts(comparison, name))[0][1]}
    if not known:
        return ""
    if impl in known:
        (right, ran), (same, of_right) = known[impl]
        text = f"{impl}: right {right} of {ran}, same bits {same} of {of_right}."
    else:
        always = [same == of_right for (right, ran), (same, of_right) in known.values() if right == ran]
        bits = "same bits" if all(always) else f"same bits {sum(always)} of {len(always)}"
        text = f"{len(always)} of {len(known)} right, {bits}."
    failed: Counter[tuple[str, Status]] = Counter(
        (entry.impl, entry.status) for case in comparison.cases for entry in case.of("failed")
    )
    parts = [f"{name} {HOW[status]} {number}" for (name, status), number in failed.items()]
    return f"{text} Failed: {', '.join(parts)}." if parts else text


def revisions(comparison: Comparison) -> str:
    """The commits of the two sides of a `compare`; empty for another run."""
    sides = ", ".join(f"{side.word} is commit {side.commit[:12]}" for side in comparison.run.sides)
    return f"{sides[:1].upper()}{sides[1:]}." if sides else ""


def fastest(comparison: Comparison, impl: str | None = None) -> tuple[str, str | None]:
    """In how many cases `impl`, or the one that wins most, is fastest; and whose geometric means are to follow."""
    summary = comparison.summary
    wins = next((wins for wins in summary.wins if impl is None or wins.impl == impl), None)
    subject = counted_label(wins) if wins else impl
    if nothing_ranked(comparison):
        return " ".join(interference(comparison)), None
    if subject is None:
        return f"No implementation could be ranked in {figures.count(summary.cases, 'case')}.", None
    if not competed(comparison, subject) and not wins:
        return f"{subject} was not timed here.", None
    if wins and all(case.aa_band is None for case in comparison.cases):
        return "No A/A pair was measured, so nobody is called fastest.", None
    if wins and {entry.impl for case in comparison.cases for entry in case.ranked} == {wins.impl}:
        ranked = figures.count(sum(bool(case.ranked) for case in comparison.cases), "case")
        return f"{subject} alone was ranked, in {ranked}: there is nothing to compare it with.", wins.impl
    alone, tied = (len(wins.alone), len(wins.tied)) if wins else (0, 0)
    word, of = first_word(comparison), f"of {figures.count(summary.cases, 'case')} {scope(comparison)}"
    text = f"{subject} is {word} in {alone} {of}" + (f" and tied for {word} in {tied} more." if tied else ".")
    if tied and not alone:  # the others of a tie are as good
        as_good = [counted_label(each) for each in summary.wins if not each.alone and len(each.tied) == tied]
        names = ", ".join(as_good) if impl is None else subject
        text = f"{names} {'are' if impl is None and len(as_good) > 1 else 'is'} tied for {word} in {tied} {of}."
    return text, wins.impl if wins else subject


def scope(comparison: Comparison) -> str:
    """What a run speaks for: its own GPU or GPUs. Only several runs speak for a model: `--format gpus`."""
    return "on this GPU" if len(comparison.gpus) < 2 else f"on these {len(comparison.gpus)} GPUs"


def competed(comparison: Comparison, impl: str) -> bool:
    """Whether an implementation was timed in any case, or failed before it could be."""
    entries = [case.entry(impl) for case in comparison.cases]
    return any(entry and entry.standing not in ("verified", "absent") for entry in entries)


def verified(outcomes: Sequence[Outcome]) -> str:
    """The outcomes of each implementation that ran, in one sentence, the failed ones last."""
    impls = tried(outcomes)
    if not impls:
        return "No implementation was tried."
    tried_on = {len(of_impl) for of_impl in impls.values()}
    cases = figures.count(max(tried_on), "case")
    ordered = sorted(impls, key=lambda impl: any(outcome.status in FAILED for outcome in impls[impl]))
    texts = "; ".join(f"{impl} {_outcomes_text(impls[impl])}" for impl in ordered)
    on = f"up to {cases} each" if len(tried_on) > 1 else cases
    return f"{figures.count(len(impls), 'implementation')} on {on}: {texts}."


def geomeans(comparison: Comparison, impl: str) -> str:
    """The geometric mean speedups of one implementation over the baseline, with the cases each covers."""
    means = [mean for mean in comparison.summary.geomeans if mean.impl == impl]
    if impl == comparison.baseline or not means:
        return ""
    parts = [f"{mean.norm} {figures.plain_ratio(mean.value)} ({mean.cases} of {mean.total} cases)" for mean in means]
    return f"Geometric mean speedup over {comparison.baseline}: {', '.join(parts)}."


def _outcomes_text(outcomes: Sequence[Outcome]) -> str:
    """The outcomes of one implementation with their numbers of cases; only its failures, where there are any."""
    counts = tally(outcomes)
    failed = [f"{HOW[status]} {counts[status]}" for status in FAILED if counts[status]]
    passed: tuple[Status, ...] = ("ok", "nondeterministic", "unsupported")
    return ", ".join(failed or [f"{HOW[status]} {counts[status]}" for status in passed if counts[status]])


def no_fastest(case: CaseComparison) -> str:
    """A sentence on a case without a lead: what keeps the fastest from being named."""
    if case.interference:
        return f"Nothing is ranked: {sentence(case.interference)}."
    unranked = case.of("unranked")
    decisive = [entry for entry in unranked if entry.too_short or entry.disturbed] or unranked
    if not decisive:
        return "Not timed."
    reason = decisive[0].reason or Reason("no_reason")
    too_fast = sentence(Reason("too_fast", reason.fields)) if reason.code == "too_short" else ""
    why = too_fast or f"not ranked ({sentence(reason)})"
    return f"Nothing is called fastest, because {decisive[0].impl} is {why}."
