"""Every plot of a results file, into a folder: speedups, bandwidth, spread of samples, precision, kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import join_outcomes
from harness.errors import UsageError
from reports.plots import bandwidth, error_growth, kernel_bars, sample_spread, speedup_map
from reports.plots.style import FORMATS, save
from reports.size_groups import groups


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Draw what the file holds into `folder`, as svg and png; gives the files.

    Raises UsageError where nothing can be drawn of it, or the folder cannot be written.
    """
    files: list[Path] = []
    try:
        for name, figure in draw(comparison):
            folder.mkdir(parents=True, exist_ok=True)
            for form in FORMATS:
                files.append(folder / f"{name}.{form}")
                save(figure, files[-1])
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}; give a writable folder with --out") from error
    if not files:
        raise UsageError(
            "nothing in these results can be drawn: no implementation ranks, and none was verified at three numbers of "
            "rows with the same columns"
        )
    return files


def draw(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    """Every plot of the file, with its name; what the file does not hold is left out."""
    yield from overall(comparison)
    for case in comparison.cases:
        if figure := kernel_bars.kernel_bars(case, comparison.run):
            yield f"kernels-{case.case.key}", figure


def overall(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    """The plots that are not one for each case; the speedups come first."""
    for group in groups(comparison):
        if figure := speedup_map.speedups(group, comparison):
            yield f"speedup-{group.key}", figure
    for group in groups(comparison):
        if figure := bandwidth.bandwidth(group, comparison):
            yield f"bandwidth-{group.key}", figure
    for case in sample_spread.largest(comparison):
        yield f"samples-{case.case.key}", sample_spread.spread(case, comparison)
    for norm, figure in error_growth.precision(join_outcomes([comparison]), comparison.run).items():
        yield f"precision-{norm}", figure
