import numpy as np
import pytest

from harness.analysis.comparison import compare
from harness.cases import NormCase
from reports.plots.sample_spread import largest, spread
from tests.results_factory import CASE, LAYER, helpers, in_processes, mixed, results, row


def drawn(file):
    comparison = compare(file)
    (case,) = largest(comparison)
    return spread(case, comparison)


def test_the_largest_case_of_each_norm_that_has_times():
    small, strided = NormCase("rms", 64, 64), NormCase("rms", 1 << 20, 64, inputs="strided-x")
    file = mixed()
    rows = [row("quack", 60.0, small), *file.rows, row("quack", 60.0, strided)]
    rows.append(row("quack", case=NormCase("layer", 1 << 20, 64, bias=True), untimed="too large"))
    assert [case.case for case in largest(compare(results(*rows)))] == [CASE, LAYER]


def names(axes):
    return [label.get_text().split(", ")[0] for label in axes.get_yticklabels()]


@pytest.mark.parametrize("processes", [1, 3])
def test_a_box_holds_the_middle_half_of_all_samples(processes):
    file = results(row("torch-eager", 180.0), row("quack", 60.0, shift=2), *helpers(180.0, 46.0))
    if processes > 1:
        file = results(*in_processes(*file.rows), processes=processes)
    (axes,) = drawn(file).axes
    samples = [us for measured in file.rows if measured.impl == "quack" for us in measured.timing.samples_us]
    percent = 100 * (np.array(samples) / np.median(samples) - 1)
    box = axes.patches[names(axes).index("quack")].get_path().vertices[:, 0]
    assert (min(box), max(box)) == pytest.approx(tuple(np.percentile(percent, (25, 75))))
    of_processes = [np.median(each.timing.samples_us) for each in file.rows if each.impl == "quack"]
    said = f"quack, {np.median(of_processes):.1f} us"  # as the tables say it
    assert axes.get_yticklabels()[names(axes).index("quack")].get_text() == said


def test_who_ranks_has_a_box_and_the_add_has_one():
    file = results(
        row("torch-eager", 180.0),
        row("quack", 60.0, status="nondeterministic"),
        row("liger", 10.0, status="wrong", reason="off"),
        *helpers(180.0, 46.0),
    )
    (axes,) = drawn(file).axes
    assert names(axes) == ["same-traffic add", "quack (nondeterministic)", "torch-eager"]
    assert len(axes.patches) == 3
    assert axes.yaxis_inverted()
