"""Every published results file gives the figures that it gave when it was published."""

import csv
import io
import math
from functools import cache
from pathlib import Path

import pytest

from harness.results.file import load
from reports.data.comparison import compare
from reports.formats.export import to_csv

GOLDEN = Path(__file__).parent / "golden" / "published.csv"
PUBLISHED = Path(__file__).parents[2] / "results/h200"
MOST_CASES = 5  # of one file, evenly spaced: the intervals of all of them take a minute
FIGURES = ("add_us", "aa_band_percent", "median_us", "spread_percent", "blocks", "speedup", "speedup_low")
FIGURES += ("speedup_high", "percent_of_add", "repeats", "differing", "rho_dx", "rho_dweight", "rho_dbias")
WORDS = ("standing", "status", "verdict")
TOLERANCE = 2e-5  # stored with five digits


@cache
def golden():
    """The stored lines of each file by (case, implementation)."""
    lines = {}
    with GOLDEN.open(encoding="utf-8", newline="") as stream:
        for line in csv.DictReader(stream):
            lines.setdefault(line.pop("file"), {})[line["case"], line["impl"]] = line
    return lines


def sample(results):
    """At most MOST_CASES cases of a file, as results."""
    cases = list(dict.fromkeys(row.case for row in results.rows))
    kept = set(cases[:: math.ceil(len(cases) / MOST_CASES)])
    results.rows[:] = [row for row in results.rows if row.case in kept]
    return results


def figures(results):
    """What is stored of a file: a line for each implementation on each case, and the geometric means."""
    comparison = compare(sample(results))
    lines = list(csv.DictReader(io.StringIO(to_csv(comparison))))
    lines += [
        {"case": f"geomean {mean.norm}", "impl": mean.impl, "speedup": str(mean.value)}
        for mean in comparison.summary.geomeans
    ]
    return {(line["case"], line["impl"]): line for line in lines}


def differences(stored, computed):
    """Which figures are not as they were stored, in words."""
    if stored.keys() != computed.keys():
        return [f"other lines: {sorted(stored.keys() ^ computed.keys())}"]
    return [
        f"{key}: {column} was {line[column]}, is {computed[key].get(column)}"
        for key, line in stored.items()
        for column in (*WORDS, *FIGURES)
        if not same(line[column], computed[key].get(column) or "", column)
    ]


def same(stored, computed, column):
    if column in WORDS or not stored or not computed:
        return stored == computed
    return float(computed) == pytest.approx(float(stored), rel=TOLERANCE, nan_ok=True)


def test_every_published_file_is_stored():
    assert {path.name.removesuffix(".jsonl.bz2") for path in PUBLISHED.glob("*.jsonl.bz2")} == set(golden())


@pytest.mark.parametrize("name", sorted(golden()))
def test_published_figures_are_unchanged(name):
    assert not differences(golden()[name], figures(load(PUBLISHED / f"{name}.jsonl.bz2")))


@pytest.mark.parametrize("column", [*WORDS, *FIGURES])
def test_a_changed_figure_is_found(column):
    stored = golden()["fast-llm"]
    key = next(key for key, line in stored.items() if line[column] and line["case"].startswith("layer"))
    changed = "other" if column in WORDS else str(float(stored[key][column]) * 1.0001 + 1e-4)
    assert differences(stored, stored | {key: stored[key] | {column: changed}})
    assert not differences(stored, stored)


def test_a_line_that_is_lost_is_found():
    stored = golden()["fp32"]
    assert differences(stored, dict(list(stored.items())[1:]))
