"""How far the in-house kernel is ahead of every other library, and each case in which it is not."""

from __future__ import annotations

from collections.abc import Sequence

from harness.results.published.planned import Plan
from reports import figures
from reports.markdown_writer import paragraphs, table
from reports.published.best_cases import OURS, Stand, libraries_of, stands
from reports.published.sources import Source, by_device, usual_rankings
from reports.table import words

NAMED = 6  # cases in which it is not ahead, the rest are counted


def section(sources: Sequence[Source], plan: Plan) -> str:
    """A table a device, of the runs of the plan with the usual flush in which it ranks beside another library."""
    parts: list[str] = []
    for files in by_device(sources).values():
        rows = [_row(each, ours) for each in usual_rankings(files, plan) if (ours := _ours(each))]
        if rows:
            heads = [*words("run", "revision"), "cases", "ahead in", *words("smallest lead", "tied", "behind")]
            parts += [f"{files[0].device_name}:", table(heads, rows)]
    return paragraphs(parts)


def told(source: Source) -> str:
    """The same of one run, in sentences; empty where it does not rank beside another library."""
    ours = _ours(source)
    if not ours:
        return ""
    ahead, tied, behind = _ahead(ours), _tied(ours), _behind(ours)
    text = f"{OURS}, this project's own kernel, is clearly faster than every other library that ran"
    text += f" ({', '.join(_others(source))}) in {len(ahead)} of {figures.count(len(ours), 'case')}"
    text += f", by at least {_lead(ahead)}." if ahead else "."
    text += f" Within noise of another in: {_named(tied)}." if tied else ""
    return f"{text} Another is faster in: {_named(behind)}." if behind else text


def _others(source: Source) -> list[str]:
    """The other libraries that rank anywhere in a run."""
    libraries = libraries_of(source)
    ranked = {libraries[entry.impl] for case in source.comparison.cases for entry in case.ranked}
    return sorted(ranked - {OURS})


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
    revision = f"{source.results.run.revision or figures.NOTHING}{', stale' if source.stale else ''}"
    counts = str(len(found)), str(len(ahead))
    least = _lead(ahead) if ahead else figures.NOTHING
    return [
        source.name,
        revision,
        *counts,
        least,
        *(_named(rest) or "nowhere" for rest in (_tied(found), _behind(found))),
    ]


def _by(stand: Stand) -> str:
    """Who is faster, and by how much."""
    percent = 100 * (max(stand.ahead, 1 / stand.ahead) - 1)
    return f"{stand.rival} by {percent:.2f} %" if stand.ahead < 1 else f"{percent:.2f} % ahead of {stand.rival}"


def _lead(ahead: Sequence[Stand]) -> str:
    least = min(ahead, key=lambda stand: stand.ahead)
    return f"{100 * (least.ahead - 1):.2f} % ({least.rival}, {least.case})"


def _named(stands: Sequence[Stand]) -> str:
    texts = [f"{stand.case} ({_by(stand)})" for stand in stands]
    rest = len(texts) - NAMED
    return ", ".join([*texts[:NAMED], *([f"{rest} more"] if rest > 0 else [])])
