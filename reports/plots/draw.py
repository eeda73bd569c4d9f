"""The plots of a results file, into a folder: speedups, kernels, precision, bandwidth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path

from matplotlib.figure import Figure

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import join_outcomes
from harness.errors import UsageError
from reports.plots import bandwidth, kernel_bars, precision, speedup_map, trend
from reports.plots.style import FORMATS, save
from reports.size_groups import groups

MOST = 8  # plots of a run, unless all are asked for: a picture takes a second


def write(runs: Sequence[Comparison], folder: Path, everything: bool = False) -> list[Path]:
    """Draw what a file holds into `folder`, as svg and png, at most MOST or `everything`; of several files the history.

    Gives the files. Raises UsageError where nothing can be drawn, or the folder cannot be written.
    """
    files: list[Path] = []
    plots = draw(runs[0], everything) if len(runs) == 1 else trend.trends(runs)
    try:
        for name, figure in islice(plots, None if everything else MOST):
            folder.mkdir(parents=True, exist_ok=True)
            for form in FORMATS:
                files.append(folder / f"{name}.{form}")
                save(figure, files[-1])
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}; give a writable folder with --out") from error
    if not files:
        raise UsageError("nothing in these results can be drawn: no implementation ranks, and none was verified")
    return files


def draw(comparison: Comparison, everything: bool = False) -> Iterator[tuple[str, Figure]]:
    """The plots of the file with their names, one of each kind by turns; kernels of the largest cases or `everything`.

    What the file does not hold is left out.
    """
    alike, run = groups(comparison), comparison.run
    cases = comparison.cases if everything else largest(comparison)
    kinds = (
        ((f"speedup-{group.key}", speedup_map.speedups(group, comparison)) for group in alike),
        ((f"bandwidth-{group.key}", bandwidth.bandwidth(group, comparison)) for group in alike),
        ((f"precision-{norm}", of) for norm, of in precision.precision(join_outcomes([comparison]), run).items()),
        ((f"kernels-{case.case.key}", kernel_bars.kernel_bars(case, run)) for case in cases),
    )
    for turn in zip_longest(*kinds):
        yield from ((name, figure) for name, figure in filter(None, turn) if figure)


def largest(comparison: Comparison) -> list[CaseComparison]:
    """The case of each norm with the most elements, of those that have a ranked implementation on the usual inputs."""
    usual = [case for case in comparison.cases if case.ranked and case.case.inputs == "normal"]
    by_norm = [[case for case in usual if case.case.norm == norm] for norm in dict.fromkeys(c.case.norm for c in usual)]
    return [max(of_norm, key=lambda case: case.case.rows * case.case.cols) for of_norm in by_norm]
