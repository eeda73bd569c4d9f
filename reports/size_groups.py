"""Cases that differ in their size alone, and how they are laid side by side: by elements, or by rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.cases import Norm
from harness.grouping import grouped
from reports import figures
from reports.labels import usual, variant


@dataclass(frozen=True)
class Group:
    """The ranked cases of one norm and one set of dtypes, on the usual inputs; `key` names it among those of a file."""

    norm: Norm
    variant: str
    key: str
    cases: tuple[CaseComparison, ...]

    @property
    def cols(self) -> list[int]:
        """The numbers of columns, from the fewest to the most."""
        return sorted({case.case.cols for case in self.cases})

    @property
    def strips(self) -> dict[str, list[CaseComparison]]:
        """The cases by elements or by rows, whichever makes fewer strips, the largest first; columns ascend in each."""
        ordered = sorted(self.cases, key=lambda case: case.case.cols)
        by_elements = grouped((case.case.rows * case.case.cols, case) for case in ordered)
        by_rows = grouped((case.case.rows, case) for case in ordered)
        if len(by_elements) <= len(by_rows):
            return {_elements(size): by_elements[size] for size in sorted(by_elements, reverse=True)}
        return {f"{rows} rows": by_rows[rows] for rows in sorted(by_rows, reverse=True)}


def groups(comparison: Comparison) -> list[Group]:
    """The groups of a file; the dtypes stand in the keys of all but the usual ones."""
    ranked = [case for case in comparison.cases if case.ranked and case.case.inputs == "normal"]
    by_dtypes: dict[tuple[Norm, str], list[CaseComparison]] = grouped(
        ((case.case.norm, variant(case.case)), case) for case in ranked
    )
    return [
        Group(norm, dtypes, norm if dtypes == _usual(comparison.cases, norm) else f"{norm}-{dtypes}", tuple(cases))
        for (norm, dtypes), cases in by_dtypes.items()
    ]


def _usual(cases: Sequence[CaseComparison], norm: Norm) -> str:
    return usual([case.case for case in cases if case.case.norm == norm])


def _elements(number: int) -> str:
    if number % (1 << 20) and number >= 1 << 10:
        return f"{number / 2**20:.3g} Mi elements"
    unit, scale = next((pair for pair in figures.BINARY if number >= pair[1]), ("", 1))
    return f"{number // scale} {unit}i elements" if unit else f"{number} elements"
