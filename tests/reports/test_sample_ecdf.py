import numpy as np
import pytest

from harness.cases import NormCase
from harness.results.joining import by_case
from reports.data.comparison import compare
from reports.plots.sample_ecdf import ecdf, largest
from tests.results_factory import CASE, LAYER, helpers, in_processes, mixed, results, row


def drawn(file):
    comparison, rows = compare(file), by_case(file)
    (case,) = largest(comparison)
    return ecdf(case, comparison, rows[case.case])


def test_the_largest_case_of_each_norm_that_has_times():
    small, strided = NormCase("rms", 64, 64), NormCase("rms", 1 << 20, 64, inputs="strided-x")
    file = mixed()
    rows = [row("quack", 60.0, small), *file.rows, row("quack", 60.0, strided)]
    rows.append(row("quack", case=NormCase("layer", 1 << 20, 64, bias=True), untimed="too large"))
    assert [case.case for case in largest(compare(results(*rows)))] == [CASE, LAYER]


@pytest.mark.parametrize("processes", [1, 3])
def test_each_sample_is_a_step(processes):
    file = results(row("torch-eager", 180.0), row("quack", 60.0, shift=2), *helpers(180.0, 46.0))
    if processes > 1:
        file = results(*in_processes(*file.rows), processes=processes)
    times, relative = drawn(file).axes
    expected = sorted(us for each in file.rows if each.impl == "quack" for us in each.timing.samples_us)
    line = times.get_lines()[0]  # the fastest comes first
    assert list(line.get_xdata()) == pytest.approx(expected)
    assert list(line.get_ydata()) == pytest.approx([(n + 1) / len(expected) for n in range(len(expected))])
    percent = relative.get_lines()[0].get_xdata()
    assert np.median(percent) == pytest.approx(0.0, abs=1e-9)
    assert percent[-1] == pytest.approx(100 * (expected[-1] / np.median(expected) - 1))


def test_who_ranks_has_a_line_and_the_add_has_one():
    file = results(
        row("torch-eager", 180.0),
        row("quack", 60.0, status="nondeterministic"),
        row("liger", 10.0, status="wrong", reason="off"),
        *helpers(180.0, 46.0),
    )
    figure = drawn(file)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["quack (nondeterministic)", "torch-eager", "same-traffic add"]
    assert all(len(axes.get_lines()) == 3 for axes in figure.axes)
    assert [axes.get_xlabel() for axes in figure.axes] == ["us (log scale)", "% off the median"]
