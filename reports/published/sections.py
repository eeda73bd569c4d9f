"""The sections that documents have from published results, a function each; between markers that name it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.results.published.planned import PACKED_SUFFIX, Plan
from reports.data.outcomes import FAILED, of_comparison, tally, tried
from reports.data.summary import fastest_of_each
from reports.markdown_writer import escape, paragraphs, write_table
from reports.parts import ran, training_step, wording
from reports.parts.geomeans import geomeans
from reports.published import all_reduce, best_cases, leads, questions, targets, two_gpus
from reports.published.sources import NOT_MEASURED, Source, by_device, pictured

PICTURE = "bandwidth-rms"
_QUOTED = ("impl", "norm", "geomean speedup", "smallest to largest", "cases", "fastest in")  # how these headings begin


def picture(sources: Sequence[Source], plan: Plan) -> str:
    """The picture, and under it what it shows and how old it is."""
    source = pictured(sources, plan)
    if source is None:
        return ""
    shown = "RMSNorm backward against hidden size; the black line is an elementwise add of the same bytes"
    caption = f"The RMSNorm backward on {source.device_name}; higher is faster. {source.age}"
    return paragraphs([f"![Bandwidth of every {shown}](docs/plots/{PICTURE}.svg)", caption])


def fastest(sources: Sequence[Source], plan: Plan) -> str:
    """The fastest variant of each implementation by the most important run, device by device."""
    first = next(iter(plan.runs))
    shown = pictured(sources, plan)
    return paragraphs(_fastest(source, source is shown) for source in sources if source.name == first)


def published(sources: Sequence[Source], plan: Plan) -> str:
    """Every published file: what it is about, its age, its reports, and the documents that read it."""
    parts: list[str] = []
    for device, files in by_device(sources).items():
        heads = "file", "what it holds", "age", "reports", "read in"
        parts += [f"### {device}: {files[0].device_name}", _table(heads, [_file(each, plan) for each in files])]
    return paragraphs(parts)


def runs(sources: Sequence[Source], plan: Plan) -> str:
    """What each run of the plan found on each device, and the runs that a device does not have."""
    parts: list[str] = []
    for files in by_device(sources).values():
        found = {source.name: source for source in files if not source.results.run.sides}
        parts += [f"## {files[0].device_name}"]
        rows = [_run(source) for source in found.values()]
        rows += [(name, run.about, NOT_MEASURED, "") for name, run in plan.runs.items() if name not in found]
        parts += [_table(("run", "what was measured, or is to be", "what it found", "age"), rows)]
    return paragraphs(parts)


def what_ran(sources: Sequence[Source], plan: Plan) -> str:
    """What became of each implementation in the most important run, device by device."""
    parts: list[str] = []
    for source in (each for each in sources if each.name == next(iter(plan.runs))):
        reasons = "\n".join(f"- {line}" for line in ran.reasons(source.comparison))
        about = f"{source.device_name}, {source.name}: {source.about}. {source.age}"
        parts += [about, write_table(ran.outcomes(source.comparison)), reasons]
    return paragraphs(filter(None, parts))


SECTIONS: dict[str, Callable[[Sequence[Source], Plan], str]] = {
    "all-reduce": all_reduce.section,
    "beside": all_reduce.margins,
    "best": best_cases.section,
    "fastest": fastest,
    "leads": leads.section,
    "picture": picture,
    "published": published,
    "questions": questions.section,
    "ran": what_ran,
    "runs": runs,
    "targets": targets.section,
    "two-gpus": two_gpus.section,
}


def _fastest(source: Source, of_picture: bool) -> str:
    comparison = source.comparison
    table = geomeans(comparison)
    means = fastest_of_each(comparison.summary.geomeans, best_cases.libraries_of(source))
    chosen = {(mean.impl, mean.norm) for mean in means}
    names = [(mean.impl, mean.norm) for mean in comparison.summary.geomeans]
    rows = tuple(row for row, name in zip(table.rows, names, strict=True) if name in chosen)
    quoted = [n for n, head in enumerate(table.heads) if head.startswith(_QUOTED)]
    links = [f"results/{source.device}/{page}" for page in source.pages]
    whence = "From the same run as the picture:" if of_picture else f"{source.age} It holds"
    about = f"How many times as fast as {comparison.baseline} each library is on {source.device_name}, by its fastest "
    about += f"implementation. {whence} {source.about}."
    about += "".join(f" [Every shape]({to})." for to in links[:1])
    shown = write_table(replace(table, rows=rows).choose(quoted))
    return "\n\n".join(filter(None, [about, shown, leads.told(source), ran.failed(source.comparison)]))


def _file(source: Source, plan: Plan) -> Sequence[str]:
    entry = plan.runs.get(source.name) or plan.kept[source.name]
    pages = ", ".join(f"[{page}]({source.device}/{page})" for page in source.pages)
    return f"{source.name}{PACKED_SUFFIX}", source.told, source.mark, pages, ", ".join(entry.documents)


def _run(source: Source) -> Sequence[str]:
    pages = source.pages
    name = f"[{source.name}](../results/{source.device}/{pages[0]})" if pages else source.name
    return name, source.told, _found(source), source.mark


def _found(source: Source) -> str:
    comparison = source.comparison
    if comparison.timed:
        return " ".join([wording.answer(comparison), *training_step.leads(comparison)[1:]])  # of cold it is the answer
    outcomes = of_comparison(comparison)
    failed = {impl: tally(of_impl) for impl, of_impl in tried(outcomes).items()}
    failed = {impl: sum(counts[status] for status in FAILED) for impl, counts in failed.items()}
    without = [impl for impl, number in failed.items() if not number]
    others = [f"{impl} in {number}" for impl, number in failed.items() if number]
    text = f"{len({outcome.case for outcome in outcomes})} cases. Nothing wrong: {', '.join(without)}."
    return f"{text} Wrong or failing: {', '.join(others)}." if others else text


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose lines are no longer than their texts, since these are long."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(escape(cell) for cell in line)} |" for line in lines)
