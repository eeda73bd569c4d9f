"""The sections of documents that are written from published results: a function for each, by the name in its marker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.analysis import figures
from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import FAILED, of_comparison, tally, tried
from harness.analysis.step import every_context
from harness.analysis.summary import Wins
from harness.records.published_plan import PACKED_SUFFIX, Plan
from reports.markdown_writer import escape, paragraphs, write_table
from reports.parts import ran
from reports.parts.geomeans import norms_side_by_side
from reports.published import all_reduce, best_cases, leads, questions, side_by_side, targets
from reports.published.sources import Source, by_device, pictured
from reports.sentences import caveats

PICTURE = "bandwidth-rms"


def picture(sources: Sequence[Source], plan: Plan) -> str:
    """The picture with a caption: what it shows and how old it is."""
    source = pictured(sources, plan)
    if source is None:
        return ""
    subject = "RMSNorm backward against hidden size; the black line is an elementwise add of the same bytes"
    caption = f"The RMSNorm backward on {source.device_name}; higher is faster. {source.age}"
    return paragraphs([f"![Bandwidth of every {subject}](docs/plots/{PICTURE}.svg)", caption])


def fastest(sources: Sequence[Source], plan: Plan) -> str:
    """The speedups of each implementation in the run of the picture, and in a paragraph each the same run elsewhere."""
    shown = pictured(sources, plan)
    if shown is None:
        return ""
    devices = by_device(sources)
    elsewhere = [source for source in sources if source.name == shown.name and source is not shown]

    def in_other_runs(source: Source) -> str:
        return leads.behind_elsewhere(devices[source.device], plan, source)

    also = (_also(source, in_other_runs(source)) for source in elsewhere)
    return paragraphs([_fastest(shown, in_other_runs(shown)), *also])


def published(sources: Sequence[Source], _plan: Plan) -> str:
    """A table for each device of its published files: contents, reports, revision, and why a file is not current."""
    parts: list[str] = []
    for device, files in by_device(sources).items():
        heads = "file", "what it holds", "reports", "revision", "why it is not current"
        parts += [f"### {device}: {files[0].device_name}", _table(heads, [_file(source) for source in files])]
    return paragraphs(parts)


def runs(sources: Sequence[Source], plan: Plan) -> str:
    """The findings of each run on each device, the timed runs first, and the runs that a device does not have."""
    parts: list[str] = []
    for files in by_device(sources).values():
        measured = [source for source in files if not source.results.run.sides]
        timed = [_timed(source) for source in measured if source.is_ranking]
        verified = [_verified(source) for source in measured if not source.is_ranking]
        absent = [name for name in plan.runs if name not in {source.name for source in measured}]
        parts += [
            f"## {files[0].device_name}",
            _table(("run", "what was timed", "who is fastest", "by geometric mean", "revision"), timed),
            _table(("run", "what was verified", "cases", "nothing wrong", "wrong or failing", "revision"), verified),
            f"Planned and not measured: {', '.join(absent)}." if absent else "",
        ]
    return paragraphs(parts)


def what_ran(sources: Sequence[Source], plan: Plan) -> str:
    """The outcomes of each implementation in the most important run, device by device."""
    parts: list[str] = []
    first = next(iter(plan.runs))
    for source in filter(lambda source: source.name == first, sources):
        reasons = "\n".join(f"- {line}" for line in ran.reasons(source.comparison))
        about = f"{source.device_name}, {source.name}: {source.about}. {source.age}"
        parts += [about, write_table(ran.outcomes(source.comparison)), reasons]
    return paragraphs(filter(None, parts))


SECTIONS: dict[str, Callable[[Sequence[Source], Plan], str]] = {
    "all-reduce": all_reduce.section,
    "another-run": side_by_side.another_run,
    "beside": all_reduce.margins,
    "best": best_cases.section,
    "fastest": fastest,
    "fleet-of-one": side_by_side.fleet_of_one,
    "leads": leads.section,
    "neighbours": side_by_side.neighbours,
    "picture": picture,
    "published": published,
    "questions": questions.section,
    "ran": what_ran,
    "runs": runs,
    "targets": targets.section,
    "two-gpus": side_by_side.two_gpus,
}


def _fastest(source: Source, in_other_runs: str) -> str:
    """The geometric means of a run, a row an implementation, and where the in-house kernel leads or not."""
    comparison = source.comparison
    about = f"Speedup over {comparison.baseline} on {source.device_name}: the geometric mean over the shapes, with the "
    about += "smallest and the largest in brackets; sorted by the higher of an implementation's means. "
    about += f"The same run as the picture: {source.about}.{_every_shape(source)}"
    shown = write_table(norms_side_by_side(comparison))
    where = " ".join(filter(None, [leads.sentences(source), in_other_runs]))
    return "\n\n".join(filter(None, [about, shown, where, ran.failed(comparison)]))


def _also(source: Source, in_other_runs: str) -> str:
    """The same run on another device, in sentences: how it and the device's other runs went, and how old it is."""
    means = [
        f"Geometric means of {wins.impl}: {_speedups(source.comparison)}." for wins in _most_wins(source.comparison)
    ]
    parts = [f"On {source.device_name}: {source.about}.", leads.sentences(source), in_other_runs, *means, source.age]
    return " ".join(filter(None, parts)) + _every_shape(source)


def _every_shape(source: Source) -> str:
    """A link to the first report of a run, behind a sentence."""
    return "".join(f" [Every shape](results/{source.device}/{page})." for page in source.pages[:1])


def _file(source: Source) -> Sequence[str]:
    pages = ", ".join(f"[{page}]({source.device}/{page})" for page in source.pages)
    revision = source.results.run.revision or figures.NOTHING
    return f"{source.name}{PACKED_SUFFIX}", source.about, pages, revision, source.why_not_current


def _timed(source: Source) -> Sequence[str]:
    comparison = source.comparison
    leaders = [_leaders(comparison)]
    if comparison.contexts:
        leaders = [f"{context.context}: {_leaders(context)}" for context in every_context(comparison)]
    checks = ["a check of the self-test failed"] if caveats.failed_checks(comparison.selftests) else []
    return _linked(source), source.about, "; ".join([*leaders, *checks]), _speedups(comparison), source.revision


def _leaders(comparison: Comparison) -> str:
    """The fastest implementations with their numbers of cases, or that only one was ranked."""
    ranked = {entry.impl for case in comparison.cases for entry in case.ranked}
    if len(ranked) == 1:
        return f"{ranked.pop()} alone was ranked"
    return leads.leaders(comparison)


def _most_wins(comparison: Comparison) -> Sequence[Wins]:
    """The implementation that is fastest in most cases, with their number; none where none is clearly fastest."""
    return comparison.summary.wins[:1]


def _speedups(comparison: Comparison) -> str:
    """The geometric means of the implementation that is fastest in most cases, with the cases they cover."""
    first = next((wins.impl for wins in _most_wins(comparison)), None)
    parts = [
        f"{mean.norm} {figures.plain_ratio(mean.value)}"
        + (f" in {mean.cases} of {mean.total}" if mean.cases < mean.total else "")
        for mean in comparison.summary.geomeans
        if mean.impl == first != comparison.baseline
    ]
    means = f"{caveats.context_named(comparison)}{', '.join(parts)}, over {comparison.baseline}"
    return means if parts else figures.NOTHING


def _verified(source: Source) -> Sequence[str]:
    outcomes = of_comparison(source.comparison)
    failed = {impl: tally(of_impl) for impl, of_impl in tried(outcomes).items()}
    failed = {impl: sum(counts[status] for status in FAILED) for impl, counts in failed.items()}
    right = ", ".join(impl for impl, number in failed.items() if not number)
    wrong = ", ".join(f"{impl} in {number}" for impl, number in failed.items() if number)
    cases = str(len({outcome.case for outcome in outcomes}))
    return _linked(source), source.about, cases, right or figures.NOTHING, wrong or figures.NOTHING, source.revision


def _linked(source: Source) -> str:
    """The name of a run, as a link to the first of its reports."""
    pages = source.pages
    return f"[{source.name}](../results/{source.device}/{pages[0]})" if pages else source.name


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without padding, because its texts are long; empty without rows."""
    lines = [heads, ["---"] * len(heads), *rows] if rows else []
    return "\n".join(f"| {' | '.join(escape(cell) for cell in line)} |" for line in lines)
