"""How far the in-house kernel is ahead of every other library, and each case in which it is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.results.published.planned import Plan
from reports import figures
from reports.data.case_comparison import Lead
from reports.data.comparison import Comparison
from reports.markdown_writer import paragraphs, table
from reports.published.best_cases import OURS, Stand, stands
from reports.published.sources import Source, by_device, usual_rankings
from reports.table import words

NAMED = 6  # cases in which it is not ahead, the rest are counted


def section(sources: Sequence[Source], plan: Plan) -> str:
    """A table a device, of the runs of the plan with the usual flush in which it ranks beside another library."""
    parts: list[str] = []
    for files in by_device(sources).values():
        rows = [_row(each, ours) for each in usual_rankings(files, plan) if (ours := _ours(each))]
        if rows:
            heads = words("run", "ahead in", "smallest lead", "tied", "behind")
            parts += [f"{files[0].device_name}:", table(heads, rows)]
    return paragraphs(parts)


def told(source: Source) -> str:
    """The same of one run, in sentences; empty where it does not rank beside another library."""
    ours = _ours(source)
    if not ours:
        return ""
    ahead, tied, behind = _ahead(ours), _tied(ours), _behind(ours)
    text = f"{OURS}, this project's own kernel, is faster than every other library"
    text += f" in {len(ahead)} of {figures.count(len(ours), 'case')}"
    text += f"; its smallest lead is {_lead(ahead)}." if ahead else "."
    text += f" Tied, as the difference is within noise: {_named(tied)}." if tied else ""
    return f"{text} Behind: {_named(behind)}." if behind else text


def leaders(comparison: Comparison) -> str:
    """Who is fastest in how many cases, who ties in how many, and in how many nobody is called fastest."""
    leading = Counter(_tied_for_first(case.lead) for case in comparison.cases if case.lead)
    unled = len(comparison.cases) - leading.total()
    counts = [*leading.most_common(), *([("nobody", unled)] if unled else [])]
    first, *others = (f"{impl} in {number}" for impl, number in counts)
    return ", ".join([f"{first} of {len(comparison.cases)}", *others])


def _tied_for_first(lead: Lead) -> str:
    """The fastest, or all that are tied for it."""
    tied = sorted((lead.impl, *lead.tied_with))
    return lead.impl if len(tied) == 1 else f"{' and '.join(tied)} tied"


def _ours(source: Source) -> list[Stand]:
    return [stand for stand in stands(source) if stand.impl == OURS]


def _ahead(found: Sequence[Stand]) -> list[Stand]:
    return [stand for stand in found if stand.leads]


def _tied(found: Sequence[Stand]) -> list[Stand]:
    """Those in which neither it nor the fastest other is clearly faster, the furthest behind first."""
    return sorted((stand for stand in found if stand.ties), key=lambda stand: stand.ahead)


def _behind(found: Sequence[Stand]) -> list[Stand]:
    """Those in which another is clearly ahead, the furthest first."""
    return sorted(
        (stand for stand in found if not (stand.leads or stand.ties) and stand.ahead < 1), key=lambda stand: stand.ahead
    )


def _row(source: Source, found: Sequence[Stand]) -> list[str]:
    ahead = _ahead(found)
    rest = (_named(stands) or "nowhere" for stands in (_tied(found), _behind(found)))
    least = _lead(ahead) if ahead else figures.NOTHING
    return [f"{source.name} ({source.revision})", f"{len(ahead)} of {len(found)}", least, *rest]


def _by(stand: Stand) -> str:
    """Who is the fastest other, and by how much it is faster or slower."""
    percent = 100 * (max(stand.ahead, 1 / stand.ahead) - 1)
    return f"{stand.rival} {percent:.2f} % {'faster' if stand.ahead < 1 else 'slower'}"


def _lead(ahead: Sequence[Stand]) -> str:
    least = min(ahead, key=lambda stand: stand.ahead)
    return f"{100 * (least.ahead - 1):.2f} % over {least.rival} ({least.case})"


def _named(stands: Sequence[Stand]) -> str:
    texts = [f"{stand.case} ({_by(stand)})" for stand in stands]
    rest = len(texts) - NAMED
    return ", ".join([*texts[:NAMED], *([f"{rest} more"] if rest > 0 else [])])
