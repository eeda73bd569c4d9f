import pytest

from harness.analysis.comparison import compare
from harness.cases import NormCase
from harness.cases.traffic import ADD_NAME, moved_bytes
from reports.plots.bandwidth import bandwidth
from reports.plots.style import line_style
from reports.size_groups import groups
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


def drawn(file):
    comparison = compare(file)
    (group,) = groups(comparison)
    return bandwidth(group, comparison)


def line(axes, impl):
    """The line of an implementation: {columns: value}."""
    (curve,) = [curve for curve in axes.get_lines() if curve.get_label() == impl]
    assert curve.get_color() == line_style(impl).colour or impl == ADD_NAME
    return dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))


def levels(axes):
    """The values of horizontal lines."""
    return [each.get_ydata()[0] for each in axes.get_lines() if list(each.get_xdata()) == [0, 1]]


def key(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_line_is_the_bytes_over_the_median():
    axes = drawn(measured()).axes[0]
    comparison = compare(measured())
    expected = {case.case.cols: case.entry("quack").bandwidth_gbps for case in comparison.cases}
    assert line(axes, "quack") == pytest.approx(expected)
    assert expected[2048] == pytest.approx(moved_bytes(SQUARE[1]) / 20.0 / 1e3, rel=0.15)  # the factory's drift


def test_panels_are_elements_or_rows():
    by_rows = [NormCase("rms", rows, cols) for rows in (4096, 8192) for cols in (1024, 2048, 4096)]
    titles = [axes.get_title(loc="left") for axes in drawn(measured(by_rows)).axes]
    assert titles == ["8192 rows", "4096 rows"]
    assert [axes.get_title(loc="left") for axes in drawn(measured()).axes] == ["8 Mi elements"]


def test_reference_lines_are_drawn_where_known():
    """They are the same-traffic add, the copy and the datasheet."""
    figure = drawn(measured(selftests=[selftest()]))
    assert levels(figure.axes[0]) == [4276.0, 4800.0]
    assert set(key(figure)) == {"datasheet, 4800", "large copy, 4276", ADD_NAME, "quack", "torch-eager"}
    bare = drawn(measured(add=False, cpu=True))
    assert levels(bare.axes[0]) == []
    assert key(bare) == ["quack", "torch-eager"]


@pytest.mark.parametrize("processes", [1, 3])
def test_each_point_lies_in_its_band(processes):
    file = measured()
    if processes > 1:
        file = results(*in_processes(*file.rows), processes=processes)
    axes = drawn(file).axes[0]
    values = line(axes, "quack")
    green = pytest.approx((0, 0x9E / 255, 0x73 / 255))
    (band,) = [band for band in axes.collections if tuple(band.get_facecolor()[0][:3]) == green]
    ends = {}
    for cols, value in band.get_paths()[0].vertices:
        ends.setdefault(cols, []).append(value)
    for cols, value in values.items():
        assert min(ends[cols]) <= value * 1.001
        assert max(ends[cols]) >= value * 0.999
        assert max(ends[cols]) > min(ends[cols]) or processes > 1  # whose quotients are all the same here


def test_nothing_is_drawn_of_single_sizes():
    assert drawn(measured(SQUARE[:1])) is None
