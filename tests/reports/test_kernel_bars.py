from itertools import pairwise
from pathlib import Path

import pytest

from harness.results.file import load
from harness.results.schema import Kernel
from reports.data.comparison import compare
from reports.data.kernel_spans import segments
from reports.plots.bar_labels import COLOURS, Bar, beside_time
from reports.plots.kernel_bars import kernel_bars
from tests.results_factory import CASE, helpers, mixed, profiled, results, row, thorough

PUBLISHED = Path(__file__).parents[2] / "results/h200/fast-llm.jsonl.bz2"


def drawn(measured, case=0):
    comparison = compare(measured)
    return kernel_bars(comparison.cases[case], comparison.run).axes[0]


def rectangles(axes):
    """Where each rectangle begins, how long it is, and whether it is a gap."""
    return [(bar.get_x(), bar.get_width(), bool(bar.get_hatch())) for bar in axes.patches]


def test_bars_hold_each_moment_once_and_the_gaps():
    overlapping = profiled(row("quack", 60.0), ("a", 0.0, 40.0), ("b", 30.0, 20.0), ("c", 52.0, 4.0))
    axes = drawn(results(overlapping, *helpers(60.0, 46.0)))
    assert rectangles(axes) == [(0.0, 40.0, False), (40.0, 10.0, False), (50.0, 2.0, True), (52.0, 4.0, False)]


def test_the_fastest_is_on_top_and_what_does_not_rank_is_not_drawn():
    axes = drawn(mixed())
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["quack", "triton-inhouse", "liger (nondeterministic)", "torch-eager"]
    bottom, top = axes.get_ylim()
    assert bottom > top


def test_the_add_and_the_medians_are_marked():
    comparison = compare(thorough())
    case = comparison.cases[0]
    axes = kernel_bars(case, comparison.run).axes[0]
    assert [line.get_xdata()[0] for line in axes.lines] == [case.add_us]
    ticks = [segment[0][0] for segment in axes.collections[0].get_segments()]
    assert ticks == pytest.approx([entry.median_us for entry in case.ranked])


def test_a_kernel_that_overlaps_shows_what_it_adds_and_what_it_takes():
    apart = profiled(row("quack", 60.0), ("a", 0.0, 40.0), ("b", 41.0, 20.0)).kernels
    early = profiled(row("quack", 60.0), ("a", 0.0, 40.0), ("b", 2.0, 42.0)).kernels
    assert beside_time(Bar(apart, segments(apart), 60.0), 1) == "20.0"
    assert beside_time(Bar(early, segments(early), 60.0), 1) == "4.00 of its 42.0"


def test_the_title_says_device_case_dtype_and_date():
    titles = [text.get_text() for text in drawn(thorough()).get_figure().texts]
    assert titles == [f"NVIDIA H200, {CASE.key}, 2025-06-01"]
    assert "bf16" in CASE.key


@pytest.mark.parametrize(("measured", "said"), [(mixed, True), (thorough, False)])
def test_kernels_whose_begin_is_unknown_are_said_to_stand_end_to_end(measured, said):
    assert ("not recorded" in drawn(measured()).get_xlabel()) is said


def test_names_stand_inside_where_they_fit_and_nothing_runs_off_the_page():
    kernels = [("main", 0.0, 50.0)] + [(f"a_rather_long_name_of_a_kernel_{n}", 50.0 + n, 1.0) for n in range(9)]
    axes = drawn(results(profiled(row("quack", 60.0), *kernels), *helpers(60.0, 46.0)))
    assert [text.get_text() for text in axes.texts if text.get_text() == "main"] == ["main"]
    figure = axes.get_figure()
    beside = [text.get_window_extent() for text in axes.texts if text.get_ha() == "left"]
    assert len(beside) > 1
    assert all(before.x1 <= after.x0 for before, after in pairwise(beside))
    assert beside[-1].x1 <= figure.bbox.x1


def test_colours_go_by_the_place_of_launch():
    from matplotlib.colors import to_hex

    faces = [to_hex(bar.get_facecolor()).upper() for bar in drawn(mixed()).patches]
    assert faces == [*COLOURS[:2]] * 4


@pytest.mark.parametrize("number", [0, 2, 20])
def test_published_cases_stay_on_the_page(number):
    comparison = compare(load(PUBLISHED))
    figure = kernel_bars(comparison.cases[number], comparison.run)
    assert max(text.get_window_extent().x1 for text in figure.axes[0].texts) <= figure.bbox.x1
    assert min(label.get_window_extent().x0 for label in figure.axes[0].get_yticklabels()) >= 0


def test_more_kernels_than_colours_are_no_error():
    many = row("quack", 60.0, kernels=[Kernel(name=f"k{n}", median_us=2.0) for n in range(30)])
    assert len(rectangles(drawn(results(many)))) == 30


def test_without_kernels_there_is_no_plot():
    comparison = compare(results(row("quack", 60.0, kernels=None)))
    assert kernel_bars(comparison.cases[0], comparison.run) is None
