"""By how much the in-house kernel leads every other library, and the cases in which it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.analysis import figures
from harness.analysis.case_comparison import Lead
from harness.analysis.comparison import Comparison
from harness.analysis.step import every_context
from harness.records.contexts import COLD
from harness.records.published_plan import Plan
from reports.markdown_writer import paragraphs, table
from reports.published.best_cases import OURS, Placing, libraries_of, placings
from reports.published.sources import Source, by_device, usual_rankings
from reports.table import words

NAMED = 6  # cases that are named where it is not ahead; the rest are counted


def section(sources: Sequence[Source], plan: Plan) -> str:
    """A table for each device, of the files of `usual_rankings` in which it ranks with another library.

    Each context of a training step has a row of its own.
    """
    parts: list[str] = []
    for files in by_device(sources).values():
        rows = [
            _row(source, context.context, ours)
            for source in usual_rankings(files, plan)
            for context in _contexts(source)
            if (ours := _ours(source, context))
        ]
        if rows:
            heads = words("run", "ahead in", "smallest lead", "tied", "behind")
            parts += [f"{files[0].device_name}:", table(heads, rows)]
    return paragraphs(parts)


def sentences(source: Source) -> str:
    """The same for one run, in sentences; empty where it does not rank with another library."""
    ours = _ours(source)
    if not ours:
        return ""
    ahead, tied, behind = _ahead(ours), _tied(ours), _behind(ours)
    text = f"{OURS}, this project's own kernel, called by itself with cold caches, is faster than every other library"
    text += f" in {len(ahead)} of {figures.count(len(ours), 'case')}"
    text += f"; its smallest lead is {_lead(ahead)}." if ahead else "."
    text += f" Tied, as the difference is within noise: {_named(tied)}." if tied else ""
    return f"{text} Behind: {_named(behind)}." if behind else text


def behind_elsewhere(files: Sequence[Source], plan: Plan, shown: Source) -> str:
    """In how many cases of the other current runs of the device it is ahead, tied and behind, and behind whom.

    A case counts once in each run and context that has it.
    Empty where no other current run compares it with another library.
    """
    counted = [
        (_run(source, context.context), ours)
        for source in usual_rankings(files, plan)
        if source is not shown and not source.stale
        for context in _contexts(source)
        if (ours := _ours(source, context))
    ]
    if not counted:
        return ""
    all_ours = [placing for _, ours in counted for placing in ours]
    total = figures.count(len(all_ours), "case")
    rivals = {run: Counter(placing.rival for placing in _behind(ours)) for run, ours in counted}
    parts = [f"in {number} behind {rival} ({run})" for run, found in rivals.items() for rival, number in found.items()]
    ahead, tied, behind = (len(kind(all_ours)) for kind in (_ahead, _tied, _behind))
    text = f"In the other current runs, a case counted once in each run and context, it is ahead in {ahead} of {total},"
    text += f" tied in {tied} and behind in {behind}"
    return f"{text}: {', '.join(parts)}." if parts else f"{text}."


def leaders(comparison: Comparison) -> str:
    """The implementations that are fastest or tied, each with its number of cases, and the cases without a fastest."""
    leading = Counter(_tied_for_first(case.lead) for case in comparison.cases if case.lead)
    unled = len(comparison.cases) - leading.total()
    counts = [*leading.most_common(), *([("no verdict", unled)] if unled else [])]
    first, *others = (f"{impl} in {number}" for impl, number in counts)
    return ", ".join([f"{first} of {len(comparison.cases)}", *others])


def _tied_for_first(lead: Lead) -> str:
    """The fastest, or all that are tied for it."""
    tied = sorted((lead.impl, *lead.tied_with))
    return lead.impl if len(tied) == 1 else f"{' and '.join(tied)} tied"


def _contexts(source: Source) -> tuple[Comparison, ...]:
    """The contexts of a run; only cold where the kernel is also told what is held, and leads itself."""
    is_told = list(libraries_of(source).values()).count(OURS) > 1
    return (source.comparison,) if is_told else every_context(source.comparison)


def _ours(source: Source, context: Comparison | None = None) -> list[Placing]:
    return [placing for placing in placings(source, context) if placing.impl == OURS]


def _ahead(placings: Sequence[Placing]) -> list[Placing]:
    return [placing for placing in placings if placing.leads]


def _tied(placings: Sequence[Placing]) -> list[Placing]:
    """The placings in which neither it nor its rival is clearly faster, the furthest behind first."""
    return sorted((placing for placing in placings if placing.ties), key=lambda placing: placing.ahead)


def _behind(placings: Sequence[Placing]) -> list[Placing]:
    """The placings in which its rival is clearly faster, the furthest behind first."""
    behind = (placing for placing in placings if not (placing.leads or placing.ties) and placing.ahead < 1)
    return sorted(behind, key=lambda placing: placing.ahead)


def _row(source: Source, context: str, placings: Sequence[Placing]) -> list[str]:
    ahead = _ahead(placings)
    rest = (_named(not_ahead) or "nowhere" for not_ahead in (_tied(placings), _behind(placings)))
    least = _lead(ahead) if ahead else figures.NOTHING
    return [f"{_name(source, context)} ({source.revision})", f"{len(ahead)} of {len(placings)}", least, *rest]


def _name(source: Source, context: str) -> str:
    """The name of a run, with a context other than cold."""
    return source.name if context == COLD else f"{source.name}, {context}"


def _run(source: Source, context: str) -> str:
    """The same for a reader of the README: with a link to the first of its reports."""
    name = "".join(f"[{source.name}](results/{source.device}/{page})" for page in source.pages[:1]) or source.name
    return f"run {name}" if context == COLD else f"run {name}, context {context}"


def _by(placing: Placing) -> str:
    """The rival, and by how much it is faster or slower."""
    percent = 100 * (max(placing.ahead, 1 / placing.ahead) - 1)
    return f"{placing.rival} {percent:.2f} % {'faster' if placing.ahead < 1 else 'slower'}"


def _lead(ahead: Sequence[Placing]) -> str:
    least = min(ahead, key=lambda placing: placing.ahead)
    return f"{100 * (least.ahead - 1):.2f} % over {least.rival} ({least.case})"


def _named(placings: Sequence[Placing]) -> str:
    texts = [f"{placing.case} ({_by(placing)})" for placing in placings]
    rest = len(texts) - NAMED
    return ", ".join([*texts[:NAMED], *([f"{rest} more"] if rest > 0 else [])])
