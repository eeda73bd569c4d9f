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


def panels(figure):
    """By implementation: the cells (column, strip), their values, and whether they are told from 1."""
    found = {}
    for axes in figure.axes:
        if name := axes.get_title(loc="left"):
            texts = {text.get_position(): text.get_text() for text in axes.texts}
            found[name] = {place: (float(text.lstrip("≈")), text.startswith("≈")) for place, text in texts.items()}
            (mesh,) = axes.collections
            coloured = ~np.ma.getmaskarray(np.ma.masked_invalid(mesh.get_array()))
            widths, heights = (np.diff(mesh.get_coordinates()[..., axis], axis=1 - axis) for axis in (0, 1))
            assert np.allclose(widths, 1)
            assert np.allclose(heights, 1)
            assert {(int(column), int(strip)) for strip, column in np.argwhere(coloured)} == texts.keys()
    return found


def test_panels_are_implementations_best_first():
    found = panels(drawn(measured()))
    assert list(found) == ["quack", "liger"]
    assert found["quack"] == {(0, 0): (pytest.approx(2.0, abs=0.01), False), (1, 0): (1.0, True)}
    assert found["liger"] == {(0, 0): (pytest.approx(0.5, abs=0.01), False)}


def test_colours_are_even_about_one_and_end_at_four():
    def scale(file):
        axes = next(axes for axes in drawn(file).axes if not axes.get_title(loc="left"))
        return [2**end for end in axes.get_ylim()]

    assert scale(measured()) == pytest.approx([0.5, 2.0], abs=0.01)
    far = results(row("torch-eager", 400.0, NARROW), row("quack", 20.0, NARROW, shift=2), *helpers(400.0, 14.0, NARROW))
    assert scale(far) == pytest.approx([0.25, 4.0])
    near = results(row("torch-eager", 40.0, NARROW), row("quack", 39.0, NARROW), *helpers(40.0, 14.0, NARROW))
    assert scale(near) == pytest.approx([1 / 1.5, 1.5])
    assert math.prod(scale(near)) == pytest.approx(1.0)


def test_nothing_is_drawn_of_the_baseline_alone():
    assert drawn(results(row("torch-eager", 40.0, NARROW), *helpers(40.0, 14.0, NARROW))) is None
