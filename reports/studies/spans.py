"""Events against the profiler, by implementation: whether both clocks give the same time for the same runs."""

from __future__ import annotations

from statistics import median

from harness.analysis import figures
from harness.analysis.comparison import Comparison
from harness.analysis.kernel_spans import agrees, disagreement_us
from reports.markdown_writer import paragraphs, table
from reports.parts import provenance
from reports.parts.kernel_table import agreement
from reports.table import words

ABOUT = (
    "Events less the profiler's lead and span of the same runs, and less what events alone cost around one kernel, by "
    "the self-test; us."
)
ASK = "Nothing was profiled here, or no self-test was made; `normbwd bench` on a GPU does both.\n"


def render(comparison: Comparison) -> str:
    """The differences as markdown."""
    differences: dict[str, list[tuple[float, bool]]] = {}
    for case in comparison.cases:
        for entry in case.entries:
            difference = disagreement_us(entry.kernel_totals, comparison.budget)
            if difference is not None:
                agreeing = bool(agrees(entry.kernel_totals, comparison.budget))
                differences.setdefault(entry.impl, []).append((difference, agreeing))
    if not differences:
        return ASK
    rows = [
        [
            impl,
            figures.share(sum(agreeing for _, agreeing in of_impl), len(of_impl)),
            *(figures.signed(at([difference for difference, _ in of_impl])) for at in (min, median, max)),
        ]
        for impl, of_impl in sorted(differences.items())
    ]
    headings = [*words("impl"), "within 1 us or 2 %", "smallest", "median", "largest"]
    parts = [provenance.heading("Events against the profiler", comparison.run), ABOUT, table(headings, rows)]
    return paragraphs([*parts, agreement(comparison)])
