import math

import pytest

from reports.data.outcomes import outcomes
from reports.plots.error_growth import precision
from reports.plots.style import look
from tests.results_factory import TALL, careful, mixed, results, row, verification

ROWS = [case.rows for case in TALL]


def drawn(run):
    return precision(outcomes([run]), run.run)


def line(axes, impl):
    (found,) = [each for each in axes.get_lines() if each.get_marker() == look(impl).marker]
    return found


def guides(axes):
    return [each for each in axes.get_lines() if each.get_marker() == "None"]


def slope(found):
    (fewest, *_, most), (first, *_, last) = found.get_xdata(), found.get_ydata()
    return math.log(last / first) / math.log(most / fewest)


def test_a_line_is_the_error_of_dweight_at_each_number_of_rows():
    (axes,) = drawn(careful())["rms"].axes
    assert list(line(axes, "torch-eager").get_ydata()) == pytest.approx([1e-4 * math.sqrt(rows) for rows in ROWS])
    assert list(line(axes, "triton-inhouse").get_ydata()) == pytest.approx([1.66e-3] * len(ROWS))
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_ylabel() == "relative rms error of dweight"


def test_points_are_moved_aside_by_less_than_half_the_way_to_the_next():
    (axes,) = drawn(careful())["rms"].axes
    first, second = (line(axes, impl).get_xdata() for impl in ("torch-eager", "triton-inhouse"))
    for found in (first, second):
        assert all(1 / 2 < moved / rows < 2 for moved, rows in zip(found, ROWS, strict=True))
        assert slope(line(axes, "torch-eager")) == pytest.approx(0.5)
    assert all(one < other for one, other in zip(first, second, strict=True))


def test_guides_have_slope_none_and_a_half():
    (axes,) = drawn(careful())["rms"].axes
    assert [slope(guide) for guide in guides(axes)] == pytest.approx([0.0, 0.5])


def test_two_numbers_of_rows_are_no_line():
    few = results(*(row("quack", case=case, verification=verification(case)) for case in TALL[:2]), timed=False)
    assert drawn(few) == {}
    assert drawn(mixed()) == {}
