"""Where the time goes, drawn: a bar an implementation, its kernels in the order in which they run, and the gaps."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from harness.results.schema import RunRecord
from reports import figures
from reports.data.comparison import CaseComparison
from reports.data.entries import Entry
from reports.data.kernel_spans import segments
from reports.plots.bar_labels import Bar, colour, name_kernels, text_width
from reports.plots.style import INK, SOFT, page, title

BAR_HEIGHT, THICKNESS = 0.4, 0.62  # inches a bar; of which it fills
LABEL_SIZE = 9.0  # points
KEY = "us (device time);   tick: median by events,   hatched: no kernel runs"
END_TO_END = "us (device time);   tick: median by events;   kernels end to end, as when each began is not recorded"


def kernel_bars(case: CaseComparison, run: RunRecord) -> Figure | None:
    """The ranked implementations of one case, fastest on top, each with its kernels, gaps and event median.

    A kernel is as long as what it adds to the time in which any kernel runs, so that an overlap counts once. None where
    no ranked implementation has kernels.
    """
    entries = [entry for entry in case.ranked if entry.kernels]
    if not entries:
        return None
    bars = [Bar(entry.kernels or (), tuple(segments(entry.kernels or ())), entry.median_us or 0.0) for entry in entries]
    widest = max(text_width(entry.label, LABEL_SIZE) for entry in entries) / 72
    sheet = page(title(run, case.case.key), 1, height=BAR_HEIGHT * len(bars), left=widest + 0.2)
    axes = sheet.panels[0]
    _frame(axes, entries)
    for place, bar in enumerate(bars):
        _draw(axes, place, bar)
    medians = [(place, bar.median_us) for place, bar in enumerate(bars) if bar.median_us]
    above, below = ([place + side for place, _ in medians] for side in (-0.42, 0.42))
    axes.vlines([us for _, us in medians], above, below, color=INK, linewidth=1.4, zorder=4)
    if case.add_us:
        axes.axvline(case.add_us, color=INK, linestyle=(0, (2, 1)), linewidth=1.0, zorder=0.9)  # behind names
        text = f"same-traffic add {figures.microseconds(case.add_us)}"
        over = axes.get_xaxis_transform()
        axes.text(case.add_us, 1.01, text, color=INK, fontsize=8, ha="center", va="bottom", transform=over)
    axes.set_xlim(0, 1.02 * max([bar.end_us for bar in bars] + [case.add_us or 0.0, 1e-3]))
    name_kernels(axes, bars)
    return sheet.figure


def _frame(axes: Axes, entries: list[Entry]) -> None:
    overlapping = all(kernel.start_us is not None for entry in entries for kernel in entry.kernels or ())
    axes.set_xlabel(KEY if overlapping else END_TO_END, color=SOFT, fontsize=9)
    axes.set_yticks(range(len(entries)), [entry.label for entry in entries], fontsize=LABEL_SIZE, color=INK)
    axes.set_ylim(len(entries) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def _draw(axes: Axes, place: int, bar: Bar) -> None:
    for segment in bar.line:
        gap = segment.kernel is None
        axes.add_artist(
            Rectangle(
                (segment.start_us, place - THICKNESS / 2),
                segment.length_us,
                THICKNESS,
                facecolor="#f4f4f4" if segment.kernel is None else colour(segment.kernel),
                edgecolor="#c4c4c4" if gap else "white",
                hatch="/////" if gap else None,
                linewidth=0.0 if gap else 0.6,
            )
        )
