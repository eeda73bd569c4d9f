import math

import pytest
from matplotlib.figure import Figure

from reports.plots.error_growth import LEAST_FACTOR, _scale, precision
from reports.plots.style import look
from tests.results_factory import TALL, careful, mixed, outcomes, results, row, verification

ROWS = [case.rows for case in TALL]


def drawn(run):
    return precision(outcomes([run]), run.run)


def line(axes, impl):
    """The errors from the fewest rows to the most, and the number beside them."""
    place = [label.get_text() for label in axes.get_yticklabels()].index(impl)
    through, first, last = [each for each in axes.get_lines() if each.get_ydata()[0] == place]
    assert {each.get_color() for each in (through, first, last)} == {look(impl).colour}
    assert (first.get_markerfacecolor(), last.get_markerfacecolor()) == ("white", look(impl).colour)
    assert (first.get_xdata()[0], last.get_xdata()[0]) == (through.get_xdata()[0], through.get_xdata()[-1])
    (text,) = [text.get_text() for text in axes.texts if text.xy[1] == place]
    return list(through.get_xdata()), text


def test_a_line_goes_from_the_fewest_rows_to_the_most():
    (axes,) = drawn(careful())["rms"].axes
    assert line(axes, "torch-eager") == (pytest.approx([1e-4 * math.sqrt(rows) for rows in ROWS]), "0.50")
    assert line(axes, "triton-inhouse") == (pytest.approx([1.66e-3] * len(ROWS)), "0.00")
    assert axes.get_xscale() == "log"
    assert axes.get_title(loc="left").endswith(f"{ROWS[0]} to {ROWS[-1]} rows")


def test_rows_are_ordered_by_the_largest_error():
    (axes,) = drawn(careful())["rms"].axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    largest = [max(line(axes, name)[0]) for name in names]
    assert largest == sorted(largest)
    bottom, top = axes.get_ylim()
    assert bottom > top


def test_small_differences_look_small():
    (axes,) = drawn(careful())["rms"].axes
    left, right = axes.get_xlim()
    assert right / left >= LEAST_FACTOR


@pytest.mark.parametrize(
    ("low", "high", "numbers"),
    [
        (1.2e-3, 9e-3, ["2e-3", "5e-3"]),  # no power of ten inside
        (3e-5, 8e-4, ["5e-5", "1e-4", "2e-4", "5e-4"]),
        (3e-6, 0.2, ["1e-5", "1e-4", "1e-3", "1e-2", "1e-1"]),
    ],
)
def test_axis_has_numbers(low, high, numbers):
    axes = Figure().subplots()
    _scale(axes, low, high)
    shown = [text.get_text() for text in axes.get_xticklabels() if low <= text.get_position()[0] <= high]
    assert shown == numbers


def test_two_numbers_of_rows_are_no_line():
    few = results(*(row("quack", case=case, verification=verification(case)) for case in TALL[:2]), timed=False)
    assert drawn(few) == {}
    assert drawn(mixed()) == {}
