"""Questions that people ask of this field, each answered by a run of the plan: who is first there, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.results.published.planned import Plan
from harness.results.statistics import geomean
from reports import figures
from reports.data.case_comparison import CaseComparison
from reports.data.comparison import Comparison
from reports.markdown_writer import paragraphs
from reports.published.leads import leaders
from reports.published.sources import NOT_MEASURED, Source, by_device


@dataclass(frozen=True)
class Question:
    """What is asked, the run that answers it, and the implementations that it is about."""

    asked: str
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
    """A list a device; of a question whose run is not there it says so."""
    parts: list[str] = []
    for files in by_device(sources).values():
        named = {source.name: source for source in files}
        lines = [f"- **{each.asked}** {_answer(each, named.get(each.run))}" for each in QUESTIONS]
        parts += [f"{files[0].device_name}:", "\n".join(lines)]
    return paragraphs(parts)


def _answer(question: Question, source: Source | None) -> str:
    if source is None:
        return f"{NOT_MEASURED.capitalize()} (run {question.run})."
    comparison = source.comparison
    about = "; ".join(_stands(comparison, impl) for impl in question.about)
    return f"{about}. Fastest: {leaders(comparison)}. From {source.name} ({source.revision})."


def _stands(comparison: Comparison, impl: str) -> str:
    """How many times as long as the fastest of each case an implementation takes: the mean and the range."""
    behind = list(_behind(comparison.cases, impl))
    if not behind:
        return f"{impl}: {_absent(comparison, impl)}"
    least, most = map(figures.plain_ratio, (min(behind), max(behind)))
    mean = figures.plain_ratio(geomean(behind))
    return f"{impl} takes {mean} times as long as the fastest ({least} to {most}, {figures.count(len(behind), 'case')})"


def _behind(cases: Sequence[CaseComparison], impl: str) -> Iterator[float]:
    for case in cases:
        entry, fastest = case.entry(impl), case.fastest
        if fastest and fastest.median_us and entry in case.ranked and entry and entry.median_us:
            yield entry.median_us / fastest.median_us


def _absent(comparison: Comparison, impl: str) -> str:
    """Why an implementation has no place in a run: by its most frequent status."""
    statuses = Counter(entry.status for case in comparison.cases if (entry := case.entry(impl)))
    return statuses.most_common(1)[0][0] if statuses else "not in this run"
