from functools import cache
from pathlib import Path

import pytest

from harness.analysis.comparison import compare
from harness.records.file import load
from reports.plots.kernel_bars import kernel_bars
from tests.results_factory import helpers, mixed, profiled, results, row, thorough


@cache
def published():
    return compare(load(next(Path(__file__).parents[2].glob("results/*/fast-llm.jsonl.bz2"))))


def drawn(measured, case=0):
    return figure_of(compare(measured), case).axes[0]


def figure_of(comparison, case=0):
    return kernel_bars(comparison.cases[case], comparison.run)


def names(axes):
    """What is written below the bars, from the top to the bottom."""
    return [line for text in axes.texts for line in text.get_text().split("\n")]


def rectangles(axes):
    """Where each rectangle begins, how long it is, and whether it is a gap."""
    return sorted((bar.get_x(), bar.get_width(), bool(bar.get_hatch())) for bar in bars(axes))


def bars(axes):
    return [bar for container in axes.containers for bar in container]


def test_bars_hold_each_moment_once_and_the_gaps():
    overlapping = profiled(row("quack", 60.0), ("a", 0.0, 40.0), ("b", 30.0, 20.0), ("c", 52.0, 4.0))
    axes = drawn(results(overlapping, *helpers(60.0, 46.0)))
    assert rectangles(axes) == [(0.0, 40.0, False), (40.0, 10.0, False), (50.0, 2.0, True), (52.0, 4.0, False)]


def test_fastest_is_on_top_and_unranked_not_drawn():
    axes = drawn(mixed())
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["quack", "triton-inhouse", "liger\n(nondeterministic)", "torch-eager"]
    bottom, top = axes.get_ylim()
    assert bottom > top


def test_the_add_and_the_medians_are_marked():
    comparison = compare(thorough())
    case = comparison.cases[0]
    axes = drawn(thorough())
    assert [line.get_xdata()[0] for line in axes.lines] == [case.add_us]
    ticks = [segment[0][0] for segment in axes.collections[0].get_segments()]
    assert ticks == pytest.approx([entry.median_us for entry in case.ranked])


def test_a_kernel_that_overlaps_says_by_how_much():
    apart = profiled(row("quack", 60.0), ("a", 0.0, 40.0), ("b", 41.0, 20.0))
    early = profiled(row("quack", 60.0), ("a", 0.0, 40.0), ("b", 2.0, 42.0))
    assert names(drawn(results(apart, *helpers(60.0, 46.0)))) == ["a 40.0 + b 20.0"]
    assert names(drawn(results(early, *helpers(60.0, 46.0)))) == ["a 40.0 + b 42.0 (38.0 overlapped)"]


def test_names_are_never_cut_and_go_on_a_further_line():
    kernels = [("main", 0.0, 50.0)] + [(f"a_rather_long_name_of_a_kernel_{n}", 50.0 + n, 1.0) for n in range(9)]
    lines = names(drawn(results(profiled(row("quack", 60.0), *kernels), *helpers(60.0, 46.0))))
    assert " ".join(lines) == "main 50.0 + " + " + ".join(f"{name} 1.00" for name, *_ in kernels[1:])
    assert len(lines) == 3


def test_neighbours_differ_in_colour():
    kernels = [(name, 10.0 * place, 10.0) for place, name in enumerate("abcdef")]
    axes = drawn(results(profiled(row("quack", 60.0), *kernels), *helpers(60.0, 46.0)))
    assert len({bar.get_facecolor() for bar in bars(axes)}) == 6


def test_without_kernels_there_is_no_plot():
    comparison = compare(results(row("quack", 60.0, kernels=None)))
    assert kernel_bars(comparison.cases[0], comparison.run) is None
