from functools import cache
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.offsetbox import HPacker, TextArea

from harness.analysis.comparison import compare
from harness.records.file import load
from harness.records.schema import Kernel
from reports.kernel_names import shorten
from reports.plots.kernel_bars import SHARED, kernel_bars, kernel_colours
from reports.plots.style import look, shade
from tests.results_factory import CASE, LAYER, helpers, mixed, profiled, results, row, thorough


@cache
def published():
    return compare(load(Path(__file__).parents[2] / "results/h200/fast-llm.jsonl.bz2"))


def drawn(measured, case=0):
    return figure_of(compare(measured), case).axes[0]


def figure_of(comparison, case=0):
    return kernel_bars(comparison.cases[case], comparison.run, kernel_colours(comparison.cases))


def names(axes):
    """What is written below the bars, from the top to the bottom."""
    return [text.get_text() for text in axes.findobj(TextArea, include_self=False) if text.get_text() != "■"]


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
    assert names(drawn(results(apart, *helpers(60.0, 46.0)))) == ["a 40.0", "b 20.0"]
    assert names(drawn(results(early, *helpers(60.0, 46.0)))) == ["a 40.0", "b 42.0 (38.0 overlapped)"]


def test_the_title_says_device_case_dtype_and_date():
    assert figure_of(compare(thorough())).get_suptitle() == f"NVIDIA H200, {CASE.key}, 2025-06-01"
    assert "bf16" in CASE.key


@pytest.mark.parametrize(("measured", "said"), [(mixed, True), (thorough, False)])
def test_kernels_of_unknown_begin_stand_end_to_end(measured, said):
    assert ("not recorded" in figure_of(compare(measured())).get_supxlabel()) is said


def test_names_are_never_cut_and_go_on_a_further_line():
    kernels = [("main", 0.0, 50.0)] + [(f"a_rather_long_name_of_a_kernel_{n}", 50.0 + n, 1.0) for n in range(9)]
    axes = drawn(results(profiled(row("quack", 60.0), *kernels), *helpers(60.0, 46.0)))
    assert names(axes) == ["main 50.0", *(f"{name} 1.00" for name, *_ in kernels[1:])]
    assert len(axes.findobj(HPacker)) == 3


def test_a_kernel_keeps_its_colour_from_case_to_case():
    """Whatever its place in the order of launch, and in the shades of the family that launches it."""
    first = profiled(row("quack", 60.0), ("a", 0.0, 40.0), ("b", 40.0, 10.0), ("c", 50.0, 5.0))
    second = profiled(row("quack", 60.0, LAYER), ("b", 0.0, 10.0), ("a", 10.0, 40.0))
    other = profiled(row("liger", 70.0, LAYER), ("c", 0.0, 60.0))
    file = results(first, second, other, *helpers(60.0, 46.0), *helpers(60.0, 46.0, LAYER))
    colours = kernel_colours(compare(file).cases)
    assert colours["a"] == look("quack").colour
    assert colours["c"] == shade(SHARED, 0.0)
    assert len(set(colours.values())) == 3
    faces = [[to_hex(bar.get_facecolor()) for bar in bars(drawn(file, case))] for case in (0, 1)]
    assert faces[0] == [colours[name] for name in "abc"]
    assert faces[1][:2] == [colours[name] for name in "ba"]


def test_neighbours_of_a_published_bar_differ_in_colour():
    comparison = published()
    colours = kernel_colours(comparison.cases)
    for entry in (entry for case in comparison.cases for entry in case.ranked):
        kernels = {shorten(kernel.name) for kernel in entry.kernels}
        assert len({colours[name] for name in kernels}) == len(kernels), entry.impl


@pytest.mark.parametrize("number", [0, 20])
def test_published_cases_stay_on_the_page(number):
    figure = figure_of(published(), number)
    figure.draw_without_rendering()
    assert max(box.get_window_extent().x1 for box in figure.axes[0].findobj(TextArea)) <= figure.bbox.x1
    assert min(label.get_window_extent().x0 for label in figure.axes[0].get_yticklabels()) >= 0


def test_more_kernels_than_colours_are_no_error():
    many = row("quack", 60.0, kernels=[Kernel(name=f"k{n}", median_us=2.0) for n in range(30)])
    assert len(rectangles(drawn(results(many)))) == 30


def test_without_kernels_there_is_no_plot():
    comparison = compare(results(row("quack", 60.0, kernels=None)))
    assert kernel_bars(comparison.cases[0], comparison.run, {}) is None
