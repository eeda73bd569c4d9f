"""The targets of the in-house kernel, and what it reached in the published runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.analysis import figures
from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.statistics import geomean
from harness.cases import Norm
from harness.records.contexts import COLD, GRAPH, HOST
from harness.records.published_plan import Plan
from reports.markdown_writer import paragraphs, table
from reports.published.best_cases import OURS
from reports.published.sources import NOT_MEASURED, Source, by_device
from reports.table import words

LARGE = 32 << 20  # elements
TORCH = "torch-eager"
MARGIN = "triton-inhouse-margin"


class CasePair(NamedTuple):
    """One case in the context that a target is about, and the same case alone."""

    case: CaseComparison
    alone: CaseComparison


@dataclass(frozen=True)
class Measure:
    """A quantity that a target limits, in words: its value in a case, and its value over several cases."""

    words: str
    of_case: Callable[[CasePair, str], float | None]
    over_cases: Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Target:
    """A limit on a measure over the cases of a run, of one norm or both, in one context.

    With `elements` only cases with so many elements count, with `shape` only those of this shape.
    """

    run: str
    measure: Measure
    at_most: float
    norm: Norm | None = None
    context: str = COLD
    impl: str = OURS
    elements: int | None = None
    shape: tuple[int, int] | None = None

    @property
    def words(self) -> str:
        """What is limited, in words."""
        norm = {"rms": "RMSNorm, ", "layer": "LayerNorm, "}.get(self.norm or "", "")
        size = f"{self.elements >> 20} Mi elements, " if self.elements else ""
        shape = "{} x {}, ".format(*self.shape) if self.shape else ""
        context = "" if self.context == COLD else f"{self.context}, "
        return f"{norm}{shape}{size}{context}{self.measure.words}{'' if self.impl == OURS else f' ({self.impl})'}"

    def fits(self, case: CaseComparison) -> bool:
        """Whether it is about this case."""
        rows, cols = case.case.rows, case.case.cols
        return (
            self.norm in (None, case.case.norm)
            and self.elements in (None, rows * cols)
            and self.shape in (None, (rows, cols))
        )


def _over_add(pair: CasePair, impl: str) -> float | None:
    entry = pair.case.entry(impl)
    return 100 / entry.percent_of_add if entry and entry.percent_of_add else None


def _us(case: CaseComparison, impl: str) -> float | None:
    entry = case.entry(impl)
    return entry.median_us if entry and entry.standing == "ranked" else None


def _over(us: float | None, other_us: float | None) -> float | None:
    return us / other_us if us and other_us else None


def _longer(pair: CasePair, impl: str) -> float | None:
    us, alone_us = _us(pair.case, impl), _us(pair.alone, impl)
    return us - alone_us if us and alone_us else None


def _behind(pair: CasePair, impl: str) -> float | None:
    lead = pair.case.lead
    return None if lead is None else float(impl != lead.impl and impl not in lead.tied_with)


OVER_ADD = Measure("time over that of the same-traffic add", _over_add, geomean)
OVER_ALONE = Measure(
    "time over its own alone", lambda pair, impl: _over(_us(pair.case, impl), _us(pair.alone, OURS)), geomean
)
MOST_OVER_ALONE = Measure("largest time over its own alone", OVER_ALONE.of_case, max)
OVER_TORCH = Measure(
    f"host's time over that of {TORCH}",
    lambda pair, impl: _over(_us(pair.case, impl), _us(pair.case, TORCH)),
    geomean,
)
LONGER = Measure("most us longer than alone", _longer, max)
BEHIND = Measure("cases in which another is clearly faster", _behind, sum)

BESIDE_8, BESIDE_32 = "beside:8", "beside:32"

TARGETS = (
    Target("fast-llm", OVER_ADD, 1.18, "rms"),
    Target("fast-llm", OVER_ADD, 1.10, "rms", elements=LARGE),
    Target("fast-llm", OVER_ADD, 1.25, "layer"),
    Target("fast-llm", OVER_ADD, 1.14, "layer", elements=LARGE),
    Target("fast-llm", BEHIND, 0),
    Target("odd", BEHIND, 0),
    *(Target("contexts", BEHIND, 0, context=context) for context in (BESIDE_8, BESIDE_32)),
    Target("contexts", OVER_ALONE, 1.25, "rms", BESIDE_8),
    Target("contexts", OVER_ALONE, 1.25, "layer", BESIDE_8),
    Target("contexts", OVER_ALONE, 1.6, "rms", BESIDE_32),
    Target("contexts", OVER_ALONE, 1.6, "layer", BESIDE_32),
    *(Target("contexts", MOST_OVER_ALONE, 2.2, context=context) for context in (BESIDE_8, BESIDE_32)),
    Target("margin", OVER_ALONE, 1.10, context=BESIDE_8, impl=f"{MARGIN}8"),
    Target("margin", OVER_ALONE, 1.35, context=BESIDE_32, impl=f"{MARGIN}32"),
    Target("contexts", OVER_TORCH, 1.0, context=HOST),
    Target("contexts", LONGER, 0.5, context=GRAPH),
    Target("residual", OVER_ADD, 1.2, "rms"),
    Target("residual", OVER_ADD, 1.12, "rms", elements=LARGE),
    Target("residual", OVER_ADD, 1.26, "layer"),
    Target("residual", OVER_ADD, 1.15, "layer", elements=LARGE),
    Target("residual", BEHIND, 0),
    Target("parallel", OVER_ADD, 1.2, "rms", elements=LARGE),
    Target("parallel", OVER_ADD, 1.3, "layer", elements=LARGE),
    Target("parallel", BEHIND, 0),
    Target("qk", OVER_ADD, 1.15, shape=(262144, 128)),
    Target("qk", BEHIND, 0),
    Target("gated", BEHIND, 0),
)


def section(sources: Sequence[Source], _plan: Plan) -> str:
    """A table for each device; a target without its run is `not measured`."""
    parts: list[str] = []
    for files in by_device(sources).values():
        named = {source.name: source for source in files}
        rows = [_row(target, named.get(target.run)) for target in TARGETS]
        heads = [*words("run", "what"), "at most", "reached", "of cases", *words("target")]
        parts += [f"{files[0].device_name}:", table(heads, rows)]
    return paragraphs(parts)


def _row(target: Target, source: Source | None) -> list[str]:
    at_most = f"{target.at_most:g}"
    values, total = ([], 0) if source is None else _values(source.comparison, target)
    if source is None or not values:
        missing = NOT_MEASURED if source is None else "not in this run"
        return [target.run, target.words, at_most, figures.NOTHING, figures.NOTHING, missing]
    value = target.measure.over_cases(values)
    reached = f"{value:g}" if target.measure is BEHIND else f"{value:.3f}"  # as many digits as a limit needs
    run = f"{source.name} ({source.revision})"
    verdict = "met" if value <= target.at_most else "missed"
    return [run, target.words, at_most, reached, f"{len(values)} of {total}", verdict]


def _values(comparison: Comparison, target: Target) -> tuple[list[float], int]:
    """The values of the measure, case by case; and how many cases the target is about."""
    by_context = {other.context: other for other in (comparison, *comparison.contexts)}
    if target.context not in by_context:
        return [], 0
    alone = {case.case: case for case in comparison.cases}
    cases = [case for case in by_context[target.context].cases if target.fits(case)]
    values = [target.measure.of_case(CasePair(case, alone.get(case.case, case)), target.impl) for case in cases]
    return [value for value in values if value is not None], len(cases)
