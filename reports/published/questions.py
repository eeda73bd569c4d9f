"""Common questions about these kernels, each answered by a run of the plan: the fastest there, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.analysis import figures
from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.statistics import geomean
from harness.records.published_plan import Plan
from reports.markdown_writer import paragraphs
from reports.published.leads import leaders
from reports.published.sources import NOT_MEASURED, Source, by_device
from reports.sentences.caveats import context_named


@dataclass(frozen=True)
class Question:
    """The text of a question, the run that answers it, and the implementations that it is about."""

    text: str
    run: str
    about: tuple[str, ...]


QUESTIONS = (
    Question(
        "Does a sum of dweight in QuACK's own kernel, as quack#101 proposes, make it the first?",
        "fast-llm",
        ("quack-fused-sum", "quack"),
    ),
    Question(
        "Is Inductor's mix-order reduction worth its gates?",
        "inductor",
        ("torch-compiled", "torch-compiled-unmixed", "torch-compiled-nonstrict"),
    ),
    Question(
        "How do the Triton kernels of Transformer Engine on ROCm do at their own shapes?",
        "te-rocm",
        ("transformer-engine-rocm",),
    ),
    Question("Is Fast-LLM's Triton kernel the first in its own fifteen shapes?", "fast-llm", ("fast-llm",)),
    Question(
        "Is flash-attention the first where two norms read one x?", "parallel", ("flash-attn-triton", "flash-attn-cuda")
    ),
)


def section(sources: Sequence[Source], _plan: Plan) -> str:
    """A list for each device; a question without its run is answered by `not measured`."""
    parts: list[str] = []
    for files in by_device(sources).values():
        named = {source.name: source for source in files}
        lines = [f"- **{question.text}** {_answer(question, named.get(question.run))}" for question in QUESTIONS]
        parts += [f"{files[0].device_name}:", "\n".join(lines)]
    return paragraphs(parts)


def _answer(question: Question, source: Source | None) -> str:
    if source is None:
        return f"{NOT_MEASURED.capitalize()} (run {question.run})."
    comparison = source.comparison
    about = "; ".join(_over_fastest(comparison, impl) for impl in question.about)
    context = context_named(comparison)
    return f"{context}{about}. Fastest: {leaders(comparison)}. From {source.name} ({source.revision})."


def _over_fastest(comparison: Comparison, impl: str) -> str:
    """The time of an implementation over that of the fastest of each case: the mean and the range."""
    ratios = list(_ratios(comparison.cases, impl))
    if not ratios:
        return f"{impl}: {_absent(comparison, impl)}"
    least, most = map(figures.plain_ratio, (min(ratios), max(ratios)))
    mean = figures.plain_ratio(geomean(ratios))
    return f"{impl} takes {mean} times as long as the fastest ({least} to {most}, {figures.count(len(ratios), 'case')})"


def _ratios(cases: Sequence[CaseComparison], impl: str) -> Iterator[float]:
    for case in cases:
        entry, fastest = case.entry(impl), case.fastest
        if fastest and fastest.median_us and entry in case.ranked and entry and entry.median_us:
            yield entry.median_us / fastest.median_us


def _absent(comparison: Comparison, impl: str) -> str:
    """Why an implementation has no times in a run: its most frequent status."""
    statuses = Counter(entry.status for case in comparison.cases if (entry := case.entry(impl)))
    return statuses.most_common(1)[0][0] if statuses else "not in this run"
