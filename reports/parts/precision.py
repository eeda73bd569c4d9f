"""How far gradients are from float64 on the usual inputs, and how that grows with the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from harness.analysis.outcomes import Outcome, norms
from harness.cases import Norm
from harness.cases.tensors import headings as short_names
from harness.records.schema import ErrorClass, TensorCheck
from reports import figures
from reports.labels import case_labels, shape, variant
from reports.table import Cell, Section, Table, left, table

ABOUT = (
    f"{figures.RHO}. worst row: the largest rho of a single row of dx. rms: the error relative to the gradient, of the "
    "same implementation on the same values held in the dtype of the case / held in fp32: where the second is far "
    "smaller, the first is the rounding of the output."
)
ABOUT_OTHERS = "The largest rho of any gradient, on the usual inputs of the shapes that do not stand above."
ABOUT_ROWS = (
    "The slope of log(relative rms of dweight) against log(rows), with its standard error, where the same columns and "
    "dtypes were run at three numbers of rows or more. 0: the error does not grow with the rows, as with partial sums "
    "in fp32. 0.5: it grows with their square root, as with accumulation in low precision."
)
FEWEST_ROWS = 2  # a sum of one term has nothing to accumulate
FEWEST_POINTS = 3  # through two, a line has no error


@dataclass(frozen=True)
class Slope:
    """The relative error of dweight grows as a power of the rows: that power, its standard error, and (rows, rms)."""

    impl: str
    norm: Norm
    cols: int
    variant: str
    power: float
    error: float
    points: tuple[tuple[int, float], ...]


def section(outcomes: Sequence[Outcome]) -> Section | None:
    """Every gradient of the cases that were studied in full, and the largest rho on all others."""
    checked = [outcome for outcome in outcomes if outcome.normal and outcome.checked.errors]
    full = dict.fromkeys(
        o.case for o in checked if any(e.fp32_relative_rms is not None for e in o.checked.errors.values())
    )
    parts = [_case([outcome for outcome in checked if outcome.case == case]) for case in full]
    others = [outcome for outcome in checked if outcome.case not in full]
    if others:
        parts.append(Section("Shape by shape", (ABOUT_OTHERS, *(_compact(norm, others) for norm in norms(others)))))
    return Section("Precision", (ABOUT, *parts)) if parts else None


def growth(outcomes: Sequence[Outcome]) -> Section | None:
    """How the error of dweight grows with the rows."""
    rows = [_slope_row(slope) for slope in slopes(outcomes)]
    headings = [*left("impl", "norm"), "columns", "rows", "rms at the fewest", "at the most", "slope"]
    return Section("Error against rows", (ABOUT_ROWS, table(headings, rows))) if rows else None


def slopes(outcomes: Iterable[Outcome]) -> list[Slope]:
    """The slope of each implementation for each set of cases that differ in rows alone."""
    series: dict[tuple[str, Norm, int, str], dict[int, float]] = {}
    for outcome in outcomes:
        case, error = outcome.case, outcome.checked.errors.get("dweight")
        if outcome.normal and case.rows >= FEWEST_ROWS and error and 0 < error.relative_rms < math.inf:
            series.setdefault((outcome.impl, case.norm, case.cols, variant(case)), {})[case.rows] = error.relative_rms
    return [_slope(key, points) for key, points in series.items() if len(points) >= FEWEST_POINTS]


def _slope(key: tuple[str, Norm, int, str], points: dict[int, float]) -> Slope:
    from scipy.stats import linregress  # slow to import

    ordered = sorted(points.items())
    if len(set(points.values())) == 1:  # linregress divides nothing by nothing here
        return Slope(*key, power=0.0, error=0.0, points=tuple(ordered))
    line = cast(Any, linregress([math.log(rows) for rows, _ in ordered], [math.log(rms) for _, rms in ordered]))
    return Slope(*key, power=float(line.slope), error=float(line.stderr), points=tuple(ordered))


def _slope_row(slope: Slope) -> list[str | Cell]:
    (fewest, smallest), *_, (most, largest) = slope.points
    return [
        slope.impl,
        slope.norm,
        f"{slope.cols}, {slope.variant}",
        f"{fewest} to {most} ({len(slope.points)})",
        figures.scientific(smallest),
        figures.scientific(largest),
        Cell(f"{slope.power:.2f} ± {slope.error:.2f}", slope.power),
    ]


def _case(outcomes: Sequence[Outcome]) -> Section:
    """All figures of every gradient of one case; gradients that the case does not have are left out."""
    case = outcomes[0].case
    tensors = list(short_names(name for outcome in outcomes for name in outcome.checked.errors))
    headings = [*left("impl"), *(f"rho {name}" for name in tensors), *left("class"), "worst row"]
    dtypes = {name: case.dtype if name == "dx" else case.weight_dtype for name in tensors}
    headings += [f"rms {name}, {dtype} / fp32" for name, dtype in dtypes.items()]
    rows = [[outcome.impl, *_figures(outcome, tensors)] for outcome in outcomes]
    return Section(case.key, (table(headings, rows),), case.norm)


def _figures(outcome: Outcome, tensors: Sequence[str]) -> list[str | Cell]:
    errors = [outcome.checked.errors.get(name) for name in tensors]
    dx = outcome.checked.errors.get("dx")
    return [
        *(_rho(error.rho if error else None) for error in errors),
        outcome.checked.error_class or figures.NOTHING,
        _rho(dx.worst_row if dx else None),
        *(_both(error) for error in errors),
    ]


def _rho(value: float | None, error_class: ErrorClass = "exact") -> Cell:
    return Cell(figures.rho(value, error_class), value)


def _both(error: TensorCheck | None) -> Cell:
    if error is None:
        return Cell(figures.NOTHING)
    text = f"{figures.scientific(error.relative_rms)} / {figures.scientific(error.fp32_relative_rms)}"
    return Cell(text, error.relative_rms)


def _compact(norm: Norm, outcomes: Sequence[Outcome]) -> Table:
    by_place = {(outcome.case, outcome.impl): outcome for outcome in outcomes if outcome.case.norm == norm}
    impls = list(dict.fromkeys(impl for _, impl in by_place))
    rows = [
        [f"{norm}, {shape(case)}, {variant(case)}", *(_largest(by_place.get((case, impl))) for impl in impls)]
        for case in case_labels([case for case, _ in by_place])
    ]
    return table([*left("case"), *impls], rows, norm)


def _largest(outcome: Outcome | None) -> Cell:
    if outcome is None or outcome.checked.error_class is None:
        return Cell(figures.NOTHING)
    errors = outcome.checked.errors.values()
    return _rho(max(error.rho for error in errors), outcome.checked.error_class)
