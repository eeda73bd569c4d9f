"""The headline: each library by its default and by its best variant, which another process chose."""

import re
from dataclasses import replace

import pytest

from harness.analysis.comparison import compare
from reports.formats import grid
from reports.parts.answers import fastest
from reports.parts.libraries import how_chosen, tables
from tests.results_factory import CASE, helpers, in_processes, mixed, results, row

TUNED = {"family": "quack", "for_speed": ["quack-tuned"]}
BASE = (row("torch-eager", 180.0), *helpers(180.0, 46.0))


def with_impls(found, **fields):
    """The file with other fields of its implementations, by name with `_` for `-`; a name that it lacks is added."""
    known = {impl.name: impl for impl in found.run.implementations}
    for name, update in ((name.replace("_", "-"), update) for name, update in fields.items()):
        known[name] = known.get(name, known["quack"].model_copy(update={"name": name})).model_copy(update=update)
    run = found.run.model_copy(update={"implementations": list(known.values())})
    return compare(replace(found, run=run))


def texts(comparison, place=0):
    """The cells of a table, without the smallest and largest that a mean goes over."""
    return [
        [re.sub(r" \([\d.]+ to [\d.]+\)", "", cell.text) for cell in each] for each in tables(comparison)[place].rows
    ]


def test_library_is_one_row_with_a_mark_where_it_was_not_always_right():
    comparison = compare(mixed())
    heads = ("RMSNorm, default", "RMSNorm, best variant", "LayerNorm, default", "LayerNorm, best variant")
    assert tables(comparison)[0].heads == ("library", *heads, "fastest in")
    assert texts(comparison) == [
        ["quack (right in 1 of 2)", "3.33", "3.33", "-", "-", "0, tied in 1"],
        ["triton-inhouse", "3.32", "3.32", "2.00", "2.00", "1, tied in 1"],
        ["liger (same bits in 1 of 2)", "2.40", "2.40", "-", "-", "0"],
        ["compiled", "-", "-", "1.60", "1.60", "0"],
        ["torch-eager", "1.00", "1.00", "1.00", "1.00", "0"],
    ]


@pytest.mark.parametrize("name", ["quack-tuned", "quack@tuned"])
@pytest.mark.parametrize(("tuned_us", "first"), [(70.0, "1"), (60.0, "0, tied in 1"), (50.0, "0")])
def test_fastest_is_ahead_of_every_variant(name, tuned_us, first):
    """The default of quack is far behind in each; its tuned row decides, by its own tuner or by `normbwd tune`."""
    rows = [row("triton-inhouse", 60.0), row("quack", 90.0), row(name, tuned_us)]
    comparison = with_impls(results(*BASE, *rows), **{"quack": TUNED, name: TUNED})
    assert tables(comparison)[0].heads[-1] == "fastest in"
    by_name = {each[0]: each[1:] for each in texts(comparison)}
    assert by_name["triton-inhouse"][2] == first
    assert by_name["quack"][:2] == ["2.00", f"{180 / tuned_us:.2f}, {name}"]
    assert f"{name} 1.5 s" in how_chosen(comparison)


@pytest.mark.parametrize("known", [[], None])
def test_nothing_is_fastest_where_variants_were_not_measured(known):
    """Whether the file names them, or is older than such names."""
    lacking = {"for_speed": ["quack-tuned"] if known is not None else None}
    rows = [row("triton-inhouse", 60.0), row("quack", 90.0)]
    comparison = with_impls(results(*BASE, *rows), **{"quack": lacking, "quack + torch": lacking})  # no variant
    assert ["quack", "2.00", *["not measured"] * (known is not None), "0"] in texts(comparison)
    assert "fastest in" not in grid.render(comparison)
    assert "Variants not measured" in how_chosen(comparison)
    assert fastest(comparison)[0] == "triton-inhouse is first in 1 of 1 case on this GPU."


def test_variant_is_chosen_in_other_processes_than_it_counts_in():
    """A variant that is lucky in one process is taken from another, where it is not lucky."""
    lucky = {("quack-tuned", "impl", process): 0.8 if process == 0 else 1.1 for process in range(3)}
    rows = in_processes(*BASE, row("quack", 90.0), row("quack-tuned", 90.0), scales=(1.0, 1.0, 1.0), bias=lucky)
    comparison = with_impls(results(*rows, processes=3), quack=TUNED, quack_tuned=TUNED)
    best = next(each for each in texts(comparison) if each[0] == "quack")[2]
    assert float(best.split(",")[0]) <= 2.00  # and not 2.14, which is 180 / 90 with a luck of 0.8 in it


def test_what_is_outside_its_purpose_stands_apart_and_does_not_compete():
    rows = [row("triton-inhouse", 60.0), row("quack", 50.0)]
    comparison = with_impls(results(*BASE, *rows), quack={"outside": "made for Blackwell"})
    assert texts(comparison)[0] == ["triton-inhouse", "3.00", "3.00", "1"]
    assert texts(comparison, 1) == [["quack", "3.60", "3.60", "made for Blackwell"]]
    assert "made for Blackwell" in grid.render(comparison)


def test_over_how_many_cases_a_mean_is():
    cases = [CASE, replace(CASE, rows=4096)]
    rows = [each for case in cases for each in (row("torch-eager", 40.0, case), *helpers(40.0, 10.0, case))]
    found = results(*rows, row("quack", 20.0, CASE), row("quack", case=cases[1], status="wrong", reason="off"))
    assert texts(compare(found))[0] == ["quack (right in 1 of 2)", "2.00 in 1 of 2", "2.00 in 1 of 2", "1"]
