import math

import numpy as np
import pytest

from harness.analysis.comparison import compare
from harness.cases import NormCase
from reports.plots.speedup_map import speedups
from reports.size_groups import groups
from tests.results_factory import helpers, results, row

WIDE, NARROW = NormCase("rms", 2048, 4096), NormCase("rms", 8192, 1024)


def measured():
    """`quack` is twice as fast in the narrow case and as fast in the wide one; `liger` half as fast, and wrong wide."""
    return results(
        row("torch-eager", 40.0, NARROW),
        row("quack", 20.0, NARROW, shift=2),
        row("liger", 80.0, NARROW, shift=1),
        *helpers(40.0, 14.0, NARROW),
        row("torch-eager", 40.0, WIDE),
        row("quack", 40.1, WIDE, shift=2),
        row("liger", 80.0, WIDE, status="wrong", reason="dx is off"),
        *helpers(40.0, 14.0, WIDE),
    )


def drawn(file, baseline=None):
    comparison = compare(file, baseline)
    (group,) = groups(comparison)
    return speedups(group, comparison)


def cells(figure):
    """By implementation and case: what stands in the cell, and whether it is coloured."""
    axes = figure.axes[0]
    impls, shapes = ([label.get_text() for label in axis.get_ticklabels()] for axis in (axes.yaxis, axes.xaxis))
    texts = {text.get_position(): text.get_text() for text in axes.texts}
    (mesh,) = axes.collections
    coloured = ~np.ma.getmaskarray(np.ma.masked_invalid(mesh.get_array()))
    return {
        (impl, shape): (texts.get((across, down)), bool(coloured[down, across]))
        for down, impl in enumerate(impls)
        for across, shape in enumerate(shapes)
    }


def test_rows_are_implementations_best_first_and_faults_are_named():
    found = cells(drawn(measured()))
    assert found == {
        ("quack", "8192x1024"): ("2.00", True),
        ("quack", "2048x4096"): ("≈1.00", True),
        ("liger", "8192x1024"): ("0.50", True),
        ("liger", "2048x4096"): ("wrong", False),
    }
    assert next(iter(found))[0] == "quack"


def test_many_cases_go_on_in_a_further_panel():
    cases = [NormCase("rms", rows, 1024) for rows in range(1024, 1024 + 20 * 64, 64)]
    rows = [each for case in cases for each in (row("torch-eager", 40.0, case), row("quack", 20.0, case, shift=2))]
    figure = drawn(results(*rows, *(each for case in cases for each in helpers(40.0, 14.0, case))))
    assert [len(axes.texts) for axes in figure.axes] == [10, 10, 0]


def test_colours_are_even_about_one_and_end_at_four():
    def scale(file):
        axes = drawn(file).axes[-1]
        return [2**end for end in axes.get_ylim()]

    assert scale(measured()) == pytest.approx([0.5, 2.0], abs=0.01)
    far = results(row("torch-eager", 400.0, NARROW), row("quack", 20.0, NARROW, shift=2), *helpers(400.0, 14.0, NARROW))
    assert scale(far) == pytest.approx([0.25, 4.0])
    near = results(row("torch-eager", 40.0, NARROW), row("quack", 39.0, NARROW), *helpers(40.0, 14.0, NARROW))
    assert scale(near) == pytest.approx([1 / 1.5, 1.5])
    assert math.prod(scale(near)) == pytest.approx(1.0)


def test_nothing_is_drawn_of_the_baseline_alone():
    assert drawn(results(row("torch-eager", 40.0, NARROW), *helpers(40.0, 14.0, NARROW))) is None
