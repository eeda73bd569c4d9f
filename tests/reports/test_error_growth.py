import math

import pytest

from reports.plots.error_growth import precision
from reports.plots.style import line_style
from tests.results_factory import TALL, careful, outcomes

ROWS = [case.rows for case in TALL]


def drawn(run):
    return precision(outcomes([run]), run.run)


def line(axes, impl):
    """The errors from the fewest rows to the most, and the number beside them."""
    place = [label.get_text() for label in axes.get_yticklabels()].index(impl)
    through, first, last = [each for each in axes.get_lines() if each.get_ydata()[0] == place]
    assert {each.get_color() for each in (through, first, last)} == {line_style(impl).colour}
    assert (first.get_markerfacecolor(), last.get_markerfacecolor()) == ("white", line_style(impl).colour)
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
