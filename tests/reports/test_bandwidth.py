import pytest

from harness.analysis.comparison import compare
from harness.cases import NormCase
from harness.cases.traffic import moved_bytes
from reports.plots.bandwidth import ADD_NAME, SHARES, bandwidth
from reports.plots.style import look
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
    assert curve.get_color() == look(impl).colour or impl == ADD_NAME
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


def test_faint_lines_are_shares_of_the_add():
    axes = drawn(measured()).axes[0]
    add = line(axes, ADD_NAME)
    shares = {text.get_text(): text.xy for text in axes.texts}
    assert shares == {f"{share} %": (4096, pytest.approx(share / 100 * add[4096])) for share in SHARES}
    assert list(drawn(measured(add=False)).axes[0].texts) == []


def test_key_is_ordered_by_height_at_the_right_edge():
    last = SQUARE[-1]
    rows = [row("low", 40.0, case) for case in SQUARE]
    rows += [row("high", 90.0 if case != last else 30.0, case, shift=2) for case in SQUARE]
    figure = drawn(results(*rows, *(part for case in SQUARE for part in helpers(40.0, 14.0, case)), baseline="low"))
    assert key(figure)[-3:] == [ADD_NAME, "high", "low"]
    assert line(figure.axes[0], "high")[1024] < line(figure.axes[0], "low")[1024]


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


def test_too_few_samples_have_no_band():
    short = [each.model_copy(update={"timing": cut(each.timing)}) for each in measured().rows]
    axes = drawn(results(*short)).axes[0]
    assert line(axes, "quack")
    assert list(axes.collections) == []


def cut(timing):
    return timing.model_copy(update={"samples_us": timing.samples_us[:4], "blocks": timing.blocks[:4]})


def test_nothing_is_drawn_of_single_sizes():
    assert drawn(measured(SQUARE[:1])) is None


def test_axes_say_units_and_sizes():
    axes = drawn(measured()).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("columns (hidden size)", "GB/s")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1024", "2048", "4096"]
    assert axes.get_xscale() == "log"
    assert axes.get_ylim()[0] == 0
