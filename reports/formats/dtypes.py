"""Compares dtypes over several files: the percentage of the same-traffic add that each implementation reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.statistics import geomean
from harness.cases import Norm
from harness.errors import UsageError
from reports import figures
from reports.labels import variant
from reports.markdown_writer import paragraphs, table
from reports.parts import conditions
from reports.table import left

ABOUT = (
    "Per cent of the same-traffic add of the same case and dtype, which the same blocks hold: the geometric mean over "
    "the shapes that all columns of a table have. Where an implementation ranks in fewer of them, their number stands "
    "behind it. A dash: it refuses the dtype, was not measured with it, or does not rank. Columns come from different "
    "runs, so that no two of them are compared by a test."
)
Shape = tuple[int, int]


@dataclass(frozen=True)
class Column:
    """The cases of one norm and dtype, by shape, and the implementations that were tried on them."""

    norm: Norm
    dtype: str
    cases: Mapping[Shape, CaseComparison]

    def percent_of_add(self, impl: str, shapes: Iterable[Shape]) -> list[float]:
        """The percentages in those of the shapes in which the implementation ranks."""
        entries = (self.cases[shape].entry(impl) for shape in shapes)
        return [e.percent_of_add for e in entries if e and e.standing == "ranked" and e.percent_of_add is not None]


def render(runs: Sequence[Comparison]) -> str:
    """The page as markdown; raises UsageError where fewer than two dtypes have a shape in common."""
    columns = columns_of(runs)
    parts = [conditions.heading("Dtypes", *(run.run for run in runs)), ABOUT]
    for norm in dict.fromkeys(column.norm for column in columns):
        of_norm = [column for column in columns if column.norm == norm]
        shapes = common(of_norm)
        if len(of_norm) > 1 and shapes:
            shape_list = ", ".join(f"{rows} x {cols}" for rows, cols in shapes)
            parts += [f"## {norm}", f"{figures.count(len(shapes), 'shape')}: {shape_list}.", _table(of_norm, shapes)]
    if len(parts) == 2:
        raise UsageError("--format dtypes needs two dtypes of one norm with a shape in common; give files of them")
    return paragraphs(parts)


def columns_of(runs: Sequence[Comparison]) -> list[Column]:
    """A column for each norm and dtype, in the order of the files; a case of two files is taken from the first."""
    cases: dict[tuple[Norm, str], dict[Shape, CaseComparison]] = {}
    for run in runs:
        for case in run.cases:
            of_dtype = cases.setdefault((case.case.norm, variant(case.case)), {})
            of_dtype.setdefault((case.case.rows, case.case.cols), case)
    return [Column(norm, dtype, by_shape) for (norm, dtype), by_shape in cases.items()]


def common(columns: Sequence[Column]) -> list[Shape]:
    """The shapes that all of them have, in the order of the first."""
    return [shape for shape in columns[0].cases if all(shape in column.cases for column in columns)]


def _table(columns: Sequence[Column], shapes: Sequence[Shape]) -> str:
    """A row for each implementation that ranks in any column, sorted by the mean of the first dtype."""
    tried = {e.impl: None for column in columns for shape in shapes for e in column.cases[shape].entries}
    percents = {impl: [column.percent_of_add(impl, shapes) for column in columns] for impl in tried}
    ranked = {impl: of_impl for impl, of_impl in percents.items() if any(of_impl)}
    ordered = sorted(ranked, key=lambda impl: [-geomean(values) if values else 0.0 for values in ranked[impl]])
    rows = [[columns[0].norm, impl, *(_mean(values, len(shapes)) for values in ranked[impl])] for impl in ordered]
    return table([*left("norm", "impl"), *(column.dtype for column in columns)], rows)


def _mean(values: Sequence[float], shapes: int) -> str:
    if not values:
        return figures.NOTHING
    behind = "" if len(values) == shapes else f" ({len(values)})"
    return f"{figures.percent(geomean(values))}{behind}"
