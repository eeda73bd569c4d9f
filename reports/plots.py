"""Where the time goes, drawn: a bar an implementation, its kernels in the order in which they run, and the gaps."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from harness.errors import UsageError
from harness.records import RunRecord
from reports import figures
from reports.comparison import CaseComparison, Comparison
from reports.entries import Entry
from reports.kernel_spans import segments
from reports.plot_labels import INK, SOFT, Bar, colour, name_kernels

WIDTH, BAR_HEIGHT, FRAME = 11.0, 0.42, 1.45  # inches
THICKNESS = 0.62
FORMATS = ("svg", "png")
KEY = "us (device time);   tick: median by events,   hatched: no kernel runs"
END_TO_END = "us (device time);   tick: median by events;   kernels end to end, as when each began is not recorded"


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Draw every case that has kernels of ranked entries into `folder`, as svg and png; gives the files.

    Raises UsageError where no case has them, or the folder cannot be written.
    """
    drawn = [case for case in comparison.cases if _profiled(case)]
    if not drawn:
        raise UsageError("no kernels of a ranked implementation are in these results; `normbwd bench` records them")
    files: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for case in drawn:
            figure = kernel_bars(case, comparison.run)
            for form in FORMATS:
                files.append(folder / f"kernels-{case.case.key}.{form}")
                save(figure, files[-1])
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}; give a writable folder with --out") from error
    return files


def save(figure: Figure, path: Path) -> None:
    """Write a figure as its path's ending says, the same bytes for the same figure."""
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "normbwd"}):
        figure.savefig(path, dpi=150, metadata=metadata)


def kernel_bars(case: CaseComparison, run: RunRecord) -> Figure:
    """The ranked implementations of one case, fastest on top, each with its kernels, gaps and event median.

    A kernel is as long as what it adds to the time in which any kernel runs, so that an overlap counts once.
    """
    entries = _profiled(case)
    bars = [Bar(entry.kernels or (), tuple(segments(entry.kernels or ())), entry.median_us or 0.0) for entry in entries]
    figure = Figure(figsize=(WIDTH, FRAME + BAR_HEIGHT * max(len(bars), 1)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _frame(axes, case, run, entries)
    for place, bar in enumerate(bars):
        _draw(axes, place, bar)
    if case.add_us:
        axes.axvline(case.add_us, color=INK, linestyle=(0, (5, 3)), linewidth=1.0, zorder=3)
        text = f"same-traffic add {figures.microseconds(case.add_us)}"
        above = axes.get_xaxis_transform()
        axes.text(case.add_us, 1.01, text, color=INK, fontsize=8, ha="center", va="bottom", transform=above)
    axes.set_xlim(0, 1.02 * max([bar.end_us for bar in bars] + [case.add_us or 0.0, 1e-3]))
    name_kernels(axes, bars)
    return figure


def _profiled(case: CaseComparison) -> list[Entry]:
    return [entry for entry in case.ranked if entry.kernels]


def _frame(axes: Axes, case: CaseComparison, run: RunRecord, entries: list[Entry]) -> None:
    title = f"{run.device.name}, {case.case.key}, {run.started_at[:10]}"
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=18)
    overlapping = all(kernel.start_us is not None for entry in entries for kernel in entry.kernels or ())
    axes.set_xlabel(KEY if overlapping else END_TO_END, color=SOFT, fontsize=9)
    axes.set_yticks(range(len(entries)), [entry.label for entry in entries], fontsize=9, color=INK)
    axes.set_ylim(max(len(entries), 1) - 0.4, -0.6)
    axes.tick_params(axis="x", colors=SOFT, labelsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#b8b8b8")


def _draw(axes: Axes, place: int, bar: Bar) -> None:
    for segment in bar.line:
        gap = segment.kernel is None
        axes.barh(
            place,
            segment.length_us,
            left=segment.start_us,
            height=THICKNESS,
            facecolor="#f4f4f4" if segment.kernel is None else colour(segment.kernel),
            edgecolor="#c4c4c4" if gap else "white",
            hatch="/////" if gap else None,
            linewidth=0.0 if gap else 0.6,
        )
    if bar.median_us:
        axes.vlines(bar.median_us, place - 0.42, place + 0.42, color=INK, linewidth=1.4, zorder=4)
