import pytest

from harness.cases import NormCase
from harness.cases.traffic import moved_bytes
from harness.results.joining import by_case
from reports.data.comparison import compare
from reports.data.size_groups import groups
from reports.plots.size_curves import ADD_NAME, bandwidth, percent_of_add
from reports.plots.style import look
from tests.results_factory import helpers, in_processes, results, row, selftest

SQUARE = [NormCase("rms", (1 << 23) // cols, cols) for cols in (1024, 2048, 4096)]
TIMES = {1024: 30.0, 2048: 20.0, 4096: 25.0}


def measured(cases=SQUARE, add=True, **more):
    """Times of two implementations that differ from size to size, and of an add that does not."""
    rows = []
    for case in cases:
        rows += [row("torch-eager", 40.0, case), row("quack", TIMES[case.cols], case, shift=2)]
        rows += helpers(40.0, 14.0, case) if add else []
    return results(*rows, **more)


def drawn(plot, file):
    comparison = compare(file)
    (group,) = groups(comparison)
    return plot(group, comparison, by_case(file))


def line(axes, impl):
    """The one line in the colour of an implementation: {columns: value}."""
    (found,) = [each for each in axes.get_lines() if each.get_marker() == look(impl).marker]
    return dict(zip(found.get_xdata(), found.get_ydata(), strict=True))


def levels(axes):
    """The values of horizontal lines."""
    return [each.get_ydata()[0] for each in axes.get_lines() if list(each.get_xdata()) == [0, 1]]


def key(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_line_is_the_bytes_over_the_median():
    axes = drawn(bandwidth, measured()).axes[0]
    comparison = compare(measured())
    expected = {case.case.cols: case.entry("quack").bandwidth_gbps for case in comparison.cases}
    assert line(axes, "quack") == pytest.approx(expected)
    assert expected[2048] == pytest.approx(moved_bytes(SQUARE[1]) / 20.0 / 1e3, rel=0.15)  # the factory's drift


def test_a_panel_is_a_number_of_elements_or_of_rows_whichever_are_fewer():
    by_rows = [NormCase("rms", rows, cols) for rows in (4096, 8192) for cols in (1024, 2048, 4096)]
    titles = [axes.get_title(loc="left") for axes in drawn(bandwidth, measured(by_rows)).axes]
    assert titles == ["8192 rows", "4096 rows"]
    assert [axes.get_title(loc="left") for axes in drawn(bandwidth, measured()).axes] == ["8 Mi elements"]


def test_the_add_the_copy_and_the_datasheet_stand_where_they_are_known():
    figure = drawn(bandwidth, measured(selftests=[selftest()]))
    assert levels(figure.axes[0]) == [4276.0, 4800.0]
    assert key(figure)[-3:] == [ADD_NAME, "large copy, 4276 GB/s", "datasheet, 4800 GB/s"]
    bare = drawn(bandwidth, measured(add=False, cpu=True))
    assert levels(bare.axes[0]) == []
    assert key(bare) == ["quack", "torch-eager"]


def test_percent_is_that_of_the_tables_and_the_add_is_the_hundred():
    axes = drawn(percent_of_add, measured()).axes[0]
    comparison = compare(measured())
    expected = {case.case.cols: case.entry("quack").percent_of_add for case in comparison.cases}
    assert line(axes, "quack") == pytest.approx(expected)
    assert levels(axes) == [100.0]
    assert drawn(percent_of_add, measured(add=False)) is None


@pytest.mark.parametrize("plot", [bandwidth, percent_of_add])
@pytest.mark.parametrize("processes", [1, 3])
def test_each_point_lies_in_its_band(plot, processes):
    file = measured()
    if processes > 1:
        file = results(*in_processes(*file.rows), processes=processes)
    axes = drawn(plot, file).axes[0]
    values = line(axes, "quack")
    (band,) = [each for each in axes.patches if each.get_facecolor()[:3] == pytest.approx((0, 0x9E / 255, 0x73 / 255))]
    ends = {}
    for cols, value in band.get_xy():
        ends.setdefault(cols, []).append(value)
    for cols, value in values.items():
        assert min(ends[cols]) <= value * 1.001
        assert max(ends[cols]) >= value * 0.999
        assert max(ends[cols]) > min(ends[cols]) or processes > 1  # whose quotients are all the same here


def test_too_few_samples_have_no_band():
    short = [each.model_copy(update={"timing": cut(each.timing)}) for each in measured().rows]
    axes = drawn(bandwidth, results(*short)).axes[0]
    assert line(axes, "quack")
    assert list(axes.patches) == []


def cut(timing):
    return timing.model_copy(update={"samples_us": timing.samples_us[:4], "blocks": timing.blocks[:4]})


def test_nothing_is_drawn_of_single_sizes():
    assert drawn(bandwidth, measured(SQUARE[:1])) is None
    assert drawn(percent_of_add, measured(SQUARE[:1])) is None


def test_axes_say_units_and_sizes():
    axes = drawn(bandwidth, measured()).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("columns (hidden size)", "GB/s")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1024", "2048", "4096"]
    assert axes.get_xscale() == "log"
    assert axes.get_ylim()[0] == 0
