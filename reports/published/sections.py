"""The parts of documents between `<!-- written: NAME -->` and `<!-- end -->`: tables of published results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from harness.analysis.held_out import why_not_held_out
from harness.analysis.libraries import Standing, standings
from harness.analysis.libraries import libraries as known_libraries
from harness.analysis.machines import RUN_BAND, CasePlace, place
from harness.analysis.outcomes import join_outcomes, tally, tried
from harness.analysis.statistics import geomean
from harness.analysis.step import every_context
from harness.cases import Norm, NormCase
from harness.grouping import grouped
from harness.records.contexts import COLD
from harness.records.published_plan import Plan
from harness.records.schema import FAILED
from reports import figures
from reports.labels import NORMS, first_word
from reports.markdown_writer import paragraphs, table, without_padding
from reports.parts import libraries
from reports.parts.conditions import engine_and_versions, libraries_text, without_hashes
from reports.published.run_facts import context_text
from reports.published.sources import Source, by_device
from reports.table import Cell, left

PLACES = ("ahead", "tied", "behind", "no verdict")
ABOUT_TALLIES = (
    "Each case in each context once, of a current run where one has it, against the rows of that run; a lead whose "
    "interval reaches into {band}, what two runs differ by, is tied. On the GPUs measured, with {versions}."
)
MOST_ROWS = 8  # of the README's table; the page of the run has all


def fastest(sources: Sequence[Source], plan: Plan) -> str:
    """The libraries with the highest mean speedups in the most important run, a column for each device and norm."""
    files = [source for source in sources if source.name == next(iter(plan.runs))]
    if not files:
        return ""
    runs = [source.comparison for source in files]
    every = [(file.device, each) for file in files for each in standings(file.comparison)]
    outside = dict.fromkeys(each.library.name for _, each in every if each.library.outside)
    known = {(each.library.name, device, each.norm): each for device, each in every if not each.library.outside}
    best_first = sorted(known.values(), key=lambda each: -each.best.value if each.best else 0.0)
    names = list(dict.fromkeys(each.library.name for each in best_first))[:MOST_ROWS]
    columns: list[tuple[str, Norm]] = [
        (file.device, norm) for file in files for norm in NORMS if any(key[1:] == (file.device, norm) for key in known)
    ]
    rows: list[list[str | Cell]] = []
    for name in names:
        places = [known.get((name, *column)) for column in columns]
        default = next(place.library.variants[0] for place in places if place)
        rows.append([libraries.with_marks(default, *runs), *map(_speedup, places), libraries.firsts(places)])
    is_bracketed = any(" (" in cell for _, *cells, _ in rows for cell in cells if isinstance(cell, str))
    complete = all(first_word(run) == "fastest" for run in runs)
    heads = [*(f"{device}, {NORMS[norm]}" for device, norm in columns), "fastest in" if complete else "first in"]
    about = (
        f"{files[0].about[:1].upper()}{files[0].about[1:]}: geometric mean speedups over {runs[0].baseline}; "
        f"{'in brackets with the best variant, where that is another; ' * is_bracketed}"
        f"{sum(len(run.cases) for run in runs)} cases in all; ‡: not ranked in every case.",
        libraries.how_chosen(runs[0]) if complete else "Not every variant was measured, so none is called fastest.",
        f"{libraries.OUTSIDE}, so only in the reports: {', '.join(outside)}." if outside else "",
    )
    alike = grouped((_versions(file, names), _measured(file)) for file in files)
    of_files = [f"Measured: {'; '.join(of)}; {file_versions}." for file_versions, of in alike.items()]
    written = without_padding(table(left("library", *heads), rows))
    return paragraphs([written, *about, " ".join(of_files)])


def _speedup(standing: Standing | None) -> str:
    """The mean speedup of a default, and that of the best variants in brackets where it is another."""
    means = (standing.default, standing.best) if standing else (None, None)
    default, best = (
        figures.plain_ratio(mean.value) + "‡" * (mean.cases < mean.total) if mean else figures.NOTHING for mean in means
    )
    return default if best == default else f"{default} ({best})"


def _measured(source: Source) -> str:
    """A file with its device and day."""
    name = f"[{source.device_name}](results/{source.device}/{source.pages[0]})" if source.pages else source.device_name
    return f"{name}, {source.date}{', **stale**' if source.stale else ''}"


def _versions(source: Source, shown: Sequence[str]) -> str:
    """Of the engine and of what the rows need; a library that has no version but a hash is in the report."""
    own = [next(iter(each.versions.items()), None) for each in known_libraries(source.comparison) if each.name in shown]
    of_rows = libraries_text(dict(version for version in own if version and not version[1].startswith("sha256")))
    return ", ".join(filter(None, [engine_and_versions(source.results.run), without_hashes(of_rows)]))


def runs(sources: Sequence[Source], plan: Plan) -> str:
    """Every run by device and versions: how often the in-house kernel is first; or what a verification found."""
    parts: list[str] = []
    for files in by_device(sources).values():
        measured = [source for source in files if not source.results.run.sides]
        absent = [name for name in plan.runs if name not in {source.name for source in measured}]
        parts.append(f"## {files[0].device_name}")
        for conditions in dict.fromkeys(engine_and_versions(source.results.run) for source in measured):
            alike = [source for source in measured if engine_and_versions(source.results.run) == conditions]
            timed = [row for source in alike if source.is_ranking for row in _timed(source)]
            verified = [_verified(source) for source in alike if not source.is_ranking]
            timed_heads = [*left("timed run", "date"), "cases", "first", "tied", "behind", "no verdict"]
            verified_heads = [*left("verified run", "date"), "cases", "implementations", "right in all", "failing"]
            parts.append(f"{conditions[:1].upper()}{conditions[1:]}:")
            parts += [without_padding(table(timed_heads, timed)), without_padding(table(verified_heads, verified))]
        linked = {page for source in measured for page in source.pages[:1]}
        more = dict.fromkeys(
            f"[{page}](../results/{source.device}/{page})"
            for source in files
            for page in source.pages
            if page not in linked
        )
        parts.append(f"More reports: {', '.join(more)}." if more else "")
        parts.append(f"Not measured: {', '.join(absent)}." if absent else "")
    return paragraphs(parts)


def tallies(sources: Sequence[Source], _plan: Plan) -> str:
    """A line for each device and norm: in how many cells the in-house kernel is ahead of all others, and by how much.

    A cell is a case in a context. One that several runs have is counted once, of the first of `sources`.
    """
    lines: dict[tuple[str, ...], dict[tuple[NormCase, str], tuple[CasePlace, bool]]] = {}
    files: dict[tuple[str, ...], dict[str, Source]] = {}
    for source in (source for source in sources if source.is_ranking):
        drawn = _drawn(source)
        for comparison in every_context(source.comparison):
            context = context_text(comparison.context, comparison.run.settings)
            for case in comparison.cases:
                line = source.device_name, NORMS[case.case.norm], *drawn
                files.setdefault(line, {})[source.name] = source
                cells = lines.setdefault(line, {})
                if (case.case, context) not in cells:
                    cells[case.case, context] = place(case), source.stale
    rows = [
        [", ".join(line), *_tally([each for each, _ in cells.values()]), _dates(files[line], cells.values())]
        for line, cells in lines.items()
    ]
    heads = [*left("device, norm"), *PLACES, "lead over the best other", *left("measured")]
    measured = dict.fromkeys(engine_and_versions(source.results.run) for of in files.values() for source in of.values())
    about = ABOUT_TALLIES.format(band=figures.band(RUN_BAND), versions="; ".join(measured))
    return paragraphs([without_padding(table(heads, rows)), about]) if rows else ""


def _dates(files: Mapping[str, Source], cells: Collection[tuple[CasePlace, bool]]) -> str:
    """The first and the last day of files, and how many of their cells are stale."""
    days, stale = sorted(source.date for source in files.values()), sum(stale for _, stale in cells)
    some = f"{stale} of {len(cells)} stale" if stale < len(cells) else "stale"
    return " to ".join(dict.fromkeys((days[0], days[-1]))) + (f", {some}" if stale else "")


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


def _timed(source: Source) -> list[list[str]]:
    """A row for each context: in how many cases the in-house kernel is first, tied, behind, or nobody is."""
    rows: list[list[str]] = []
    for comparison in every_context(source.comparison):
        context = "" if comparison.context == COLD else f", {comparison.context}"
        places = Counter(place(case, floor=None).said for case in comparison.cases)
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
