"""A head against its base in words: right or wrong, same bits, faster or slower by how much, and what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.analysis.comparison import Comparison
from harness.analysis.revisions import CHANGES, change, mean_speedup
from harness.analysis.verdicts import GRAVEST_OUTCOME_FIRST, Outcome, Verdict
from harness.grouping import grouped
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason, kind
from harness.records.schema import FAILED, Status
from reports import figures
from reports.parts import caveats, reasons
from reports.parts.answers import HOW, counts

MOST_FAILURES = 12  # lines; what is beyond shares the last one, as no failure is left out
WHOLE = 2000  # characters of a line that is not cut: no reason is longer


def head_of(comparison: Comparison) -> str | None:
    """The name of head in a `compare` run whose baseline is base; None for another run."""
    name, at, word = comparison.baseline.rpartition("@")
    sides = [side.word for side in comparison.run.sides]
    return f"{name}{at}{sides[1]}" if len(sides) == 2 and word == sides[0] else None


def summary(comparison: Comparison, head: str) -> str:
    """The sentence that a reader of a pull request reads first."""
    entries = [(case, case.entry(head)) for case in comparison.cases]
    total = len(entries)
    statuses = Counter[Status](entry.status if entry else "missing" for _, entry in entries)
    (right, _), (same_bits, _) = counts(comparison, head)
    other_bits = sum(bool(entry and entry.other_bits) for _, entry in entries)
    changes = Counter(change(case, entry) for case, entry in entries)
    parts = [f"{HOW[status]} {statuses[status]} of {total}" for status in FAILED if statuses[status]]
    parts += [f"right on {right} of {total}"] if right or not parts else []
    parts += [f"refuses {statuses['unsupported']} of {total}"] if statuses["unsupported"] else []
    if right:
        parts.append(f"other bits on {other_bits} of {right}" if other_bits else f"same bits on {same_bits} of {right}")
    parts += [f"{word} on {changes[word]} of {total}" for word in CHANGES if changes[word]]
    if right and not any(changes[word] for word in CHANGES):
        parts.append("no verdict on its speed")
    by = ""
    if mean := mean_speedup(comparison.cases, comparison.baseline, head):
        ratio, cases = mean
        by = f": {figures.ratio_and_interval(ratio)} times as fast as base over {figures.count(cases, 'case')}"
    return f"{head.rpartition('@')[0]}: {', '.join(parts)}{by}."


def failures(comparison: Comparison, head: str) -> list[str]:
    """All failures with all of their cases, those of head first, in at most MOST_FAILURES lines."""
    lines = sorted(reasons.failure_lines(comparison, WHOLE), key=lambda line: not line.startswith(f"{head}: "))
    last = ["; ".join(lines[MOST_FAILURES - 1 :])] if len(lines) >= MOST_FAILURES else []
    return [*lines[: MOST_FAILURES - 1], *last]


def warnings(comparison: Comparison, gated: bool) -> list[str]:
    """What a reader must know before any figure; why nothing is ranked is left to a gate that says it."""
    unsaid = caveats.nothing_ranked(comparison) and not gated
    return [*(caveats.interference(comparison) if unsaid else []), *caveats.caveats(comparison)]


def outcomes(verdicts: Sequence[Verdict], head: str) -> dict[str, Outcome]:
    """The gravest outcome of a gate on head for each case, by key."""
    of_head = [verdict for verdict in verdicts if verdict.case and verdict.subject.names[0] == head]
    ordered = sorted(of_head, key=lambda verdict: GRAVEST_OUTCOME_FIRST.index(verdict.outcome), reverse=True)
    return {verdict.case.key: verdict.outcome for verdict in ordered if verdict.case}


def gate(verdicts: Sequence[Verdict]) -> str:
    """The outcome of a gate and its reasons, each once with its number of cases; empty without verdicts."""
    groups = grouped(((verdict.outcome, _why(verdict) and kind(verdict.reason)), verdict) for verdict in verdicts)
    ordered = sorted(groups.items(), key=lambda group: GRAVEST_OUTCOME_FIRST.index(group[0][0]))
    parts = [f"{len(alike)} {outcome}{_why(alike[0])}" for (outcome, _), alike in ordered]
    return f"Gate: {', '.join(parts)}." if parts else ""


def _why(verdict: Verdict) -> str:
    """The reason of an outcome that the table and the failures do not show, with the figures of a geometric mean."""
    if verdict.outcome == "PASS" or (verdict.outcome == "REGRESSED" and not verdict.for_speed):
        return ""
    loss = verdict.loss if verdict.case is None else None
    figure = Reason("loss", {"speedup": loss.speedup, "low": loss.low, "high": loss.high}) if loss else None
    return f" ({f'geomean {sentence(figure)}: ' if figure else ''}{sentence(verdict.reason)})"
