"""The parts of documents between `<!-- written: NAME -->` and `<!-- end -->`: tables of published results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from harness.analysis.held_out import why_not_held_out
from harness.analysis.machines import RUN_BAND, CasePlace, place
from harness.analysis.outcomes import join_outcomes, tally, tried
from harness.analysis.statistics import geomean
from harness.analysis.step import every_context
from harness.cases import NormCase
from harness.records.contexts import COLD
from harness.records.published_plan import Plan
from harness.records.run_records import RunRecord
from harness.records.schema import FAILED
from reports import figures
from reports.labels import NORMS, is_own
from reports.markdown_writer import paragraphs, table, without_padding, write_table
from reports.parts import libraries
from reports.parts.conditions import libraries_text
from reports.published.run_facts import context_text
from reports.published.sources import Source, by_device, most_important
from reports.table import left

PLACES = ("ahead", "tied", "behind", "no verdict")
ABOUT_TALLIES = (
    "Each case in each context once; a lead within {band}, what two runs differ by, is tied. On the GPUs measured."
)
MOST_ROWS = 8  # of the README's table; the page of the run has all


def fastest(sources: Sequence[Source], plan: Plan) -> str:
    """The implementations with the highest mean speedups in the most important run, and how that was measured."""
    source = most_important(sources, plan)
    if source is None:
        return ""
    comparison = source.comparison
    link = "".join(f"; [all shapes and implementations](results/{source.device}/{page})" for page in source.pages[:1])
    stale = "; **stale**" if source.stale else ""
    inside, outside = libraries.tables(comparison, False, MOST_ROWS)
    apart = [f"{libraries.OUTSIDE}:", without_padding(write_table(outside))] if outside.rows else []
    how = f"Geometric mean speedups over {comparison.baseline}. {libraries.how_chosen(comparison)}"
    engine = f"engine version {source.results.run.engine_version}"
    measured = f"{source.device_name}, {source.date}, {engine}; {source.about}{link}{stale}."
    about = f"{how} {measured} {libraries.versions(comparison, inside)}"
    return paragraphs([without_padding(write_table(inside)), about, *apart])


def runs(sources: Sequence[Source], plan: Plan) -> str:
    """Every run by device and versions: how often the in-house kernel is first; or what a verification found."""
    parts: list[str] = []
    for files in by_device(sources).values():
        measured = [source for source in files if not source.results.run.sides]
        absent = [name for name in plan.runs if name not in {source.name for source in measured}]
        parts.append(f"## {files[0].device_name}")
        for conditions in dict.fromkeys(versions(source.results.run) for source in measured):
            alike = [source for source in measured if versions(source.results.run) == conditions]
            timed = [row for source in alike if source.is_ranking for row in _timed(source)]
            verified = [_verified(source) for source in alike if not source.is_ranking]
            timed_heads = [*left("timed run", "date"), "cases", "first", "tied", "behind", "no verdict"]
            verified_heads = [*left("verified run", "date"), "cases", "implementations", "right in all", "failing"]
            parts.append(f"{conditions[:1].upper()}{conditions[1:]}:")
            parts += [without_padding(table(timed_heads, timed)), without_padding(table(verified_heads, verified))]
        parts.append(f"Not measured: {', '.join(absent)}." if absent else "")
    return paragraphs(parts)


def tallies(sources: Sequence[Source], _plan: Plan) -> str:
    """A line for each device and norm: in how many cells the in-house kernel is ahead of all others, and by how much.

    A cell is a case in a context. One that several runs have is counted once, of the most important run.
    """
    lines: dict[tuple[str, ...], dict[tuple[NormCase, str], CasePlace]] = {}
    for source in (source for source in sources if source.is_ranking):
        drawn = _drawn(source)
        for comparison in every_context(source.comparison):
            context = context_text(comparison.context, comparison.run.settings)
            for case in comparison.cases:
                cells = lines.setdefault((source.device_name, NORMS[case.case.norm], *drawn), {})
                if (case.case, context) not in cells:
                    cells[case.case, context] = place(case, is_own)
    rows = [[", ".join(line), *_tally(list(cells.values()))] for line, cells in lines.items()]
    heads = [*left("device, norm"), *PLACES, "lead over the best other"]
    return paragraphs([without_padding(table(heads, rows)), ABOUT_TALLIES.format(band=figures.band(RUN_BAND))])


def _drawn(source: Source) -> list[str]:
    """How the shapes of a run were drawn, for a line of its own; empty where they were chosen."""
    run = source.results.run
    if run.drawn is None:
        return []
    why_not = why_not_held_out(run, source.results.revisions)
    return [f"{run.settings.draw} {'drawn, not held out' if why_not else 'held out'}"]


def _tally(places: Sequence[CasePlace]) -> list[str]:
    """How many cells have each place, and the geometric mean of the leads with the smallest and the largest."""
    counts = Counter(place.said for place in places)
    leads = [place.lead for place in places if place.lead is not None]
    ends = f" ({figures.plain_ratio(min(leads))} to {figures.plain_ratio(max(leads))})" if leads else ""
    return [*(str(counts[said]) for said in PLACES), figures.plain_ratio(geomean(leads)) + ends]


SECTIONS: dict[str, Callable[[Sequence[Source], Plan], str]] = {"fastest": fastest, "tallies": tallies, "runs": runs}


def versions(run: RunRecord) -> str:
    """The versions of the engine and of the libraries that most times depend on."""
    shared = {name: run.libraries[name] for name in ("torch", "triton", "libcudnn") if name in run.libraries}
    return ", ".join(filter(None, [f"engine version {run.engine_version}", libraries_text(shared)]))


def _timed(source: Source) -> list[list[str]]:
    """A row for each context: in how many cases the in-house kernel is first, tied, behind, or nobody is."""
    rows: list[list[str]] = []
    for comparison in every_context(source.comparison):
        context = "" if comparison.context == COLD else f", {comparison.context}"
        places = Counter(place(case, is_own, floor=None).said for case in comparison.cases)
        counts = [str(places[said]) for said in PLACES]
        rows.append([f"{_linked(source)}{context}", _date(source), str(len(comparison.cases)), *counts])
    return rows


def _verified(source: Source) -> list[str]:
    outcomes = join_outcomes([source.comparison])
    counts = [tally(of_impl) for of_impl in tried(outcomes).values()]
    failing = sum(any(of_impl[status] for status in FAILED) for of_impl in counts)
    cases = len({outcome.case for outcome in outcomes})
    numbers = (cases, len(counts), len(counts) - failing, failing)
    return [_linked(source), _date(source), *map(str, numbers)]


def _date(source: Source) -> str:
    return f"{source.date}, stale" if source.stale else source.date


def _linked(source: Source) -> str:
    """The name of a run, as a link to the first of its reports."""
    pages = source.pages
    return f"[{source.name}](../results/{source.device}/{pages[0]})" if pages else source.name
