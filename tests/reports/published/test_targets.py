"""What is asked of the in-house kernel beside what a run reached, from times that are easy to check."""

import pytest

from harness.cases import NormCase
from harness.records.published_plan import Plan, read_plan
from reports.published import targets
from reports.published.sources import Source
from reports.published.targets import (
    BEHIND,
    LONGER,
    MARGIN,
    MOST_OVER_ALONE,
    OVER_ADD,
    OVER_ALONE,
    OVER_TORCH,
    TARGETS,
    Target,
    section,
)
from tests.reports.published.small_checkout import publish
from tests.results_factory import helpers, in_contexts, results, row

PLAN = Plan.model_validate({"runs": {"shapes": {"about": "two shapes", "bench": {"shapes": "8x8"}}}})
LARGE, SMALL, LAYER = NormCase("rms", 8192, 4096), NormCase("rms", 8192, 1024), NormCase("layer", 8192, 4096, bias=True)
TIMES = {LARGE: 36.0, SMALL: 48.0, LAYER: 30.0}  # of the in-house kernel, a tenth more as they drift; the add 30


@pytest.fixture
def source(tmp_path):
    """A run of three cases, alone, beside others, as a graph and on the host."""
    rows = []
    for case, us in TIMES.items():
        timed = [row("torch-eager", 100.0, case), row("triton-inhouse", us, case), row("quack", 40.0, case)]
        timed.append(row(f"{MARGIN}8", us, case))
        timed += helpers(100.0, 30.0, case)
        scales = {"beside_8": {LARGE: 1.5, SMALL: 1.2, LAYER: 1.2}[case], "graph": 1.1, "host": 0.5}
        rows += in_contexts(timed, **{name: lambda impl, by=by: by for name, by in scales.items()})
    path = tmp_path / "h200/shapes.jsonl.bz2"
    publish(results(*rows, context="cold,beside:8,graph,host"), path, "h200")
    return Source("h200", "shapes", "three shapes", path, PLAN)


def found(monkeypatch, sources, *asked):
    """The cells of each target's row, but for the run."""
    monkeypatch.setattr(targets, "TARGETS", asked)
    lines = [line for line in section(sources, PLAN).splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in lines]


@pytest.mark.parametrize(
    ("target", "what", "reached", "cases"),
    [
        (Target("shapes", OVER_ADD, 1, "rms"), "RMSNorm, time over that of the same-traffic add", "1.386", "2 of 2"),
        (
            Target("shapes", OVER_ADD, 1, "rms", elements=32 << 20),
            "RMSNorm, 32 Mi elements, time over that of the same-traffic add",
            "1.200",
            "1 of 1",
        ),
        (
            Target("shapes", OVER_ADD, 1, shape=(8192, 1024)),
            "8192 x 1024, time over that of the same-traffic add",
            "1.600",
            "1 of 1",
        ),
        (Target("shapes", BEHIND, 0), "cases in which another is clearly faster", "1", "3 of 3"),
        (
            Target("shapes", OVER_ALONE, 1, "layer", "beside:8"),
            "LayerNorm, beside:8, time over its own alone",
            "1.200",
            "1 of 1",
        ),
        (
            Target("shapes", MOST_OVER_ALONE, 1, context="beside:8"),
            "beside:8, largest time over its own alone",
            "1.500",
            "3 of 3",
        ),
        (
            Target("shapes", OVER_ALONE, 1, "rms", "beside:8", f"{MARGIN}8"),
            f"RMSNorm, beside:8, time over its own alone ({MARGIN}8)",
            "1.342",
            "2 of 2",
        ),
        (
            Target("shapes", OVER_TORCH, 0.3, context="host"),
            "host, host's time over that of torch-eager",
            "0.373",
            "3 of 3",
        ),
        (Target("shapes", LONGER, 0.5, context="graph"), "graph, most us longer than alone", "5.273", "3 of 3"),
    ],
)
def test_a_target_beside_what_was_reached(target, what, reached, cases, source, monkeypatch):
    assert found(monkeypatch, [source], target) == [[what, f"{target.at_most:g}", reached, cases, "missed"]]


def test_a_target_that_is_reached_exactly_is_met(source, monkeypatch):
    (cells,) = found(monkeypatch, [source], Target("shapes", BEHIND, 1))
    assert cells[-1] == "met"


def test_what_was_not_measured_is_said_not_to_be(source, monkeypatch):
    absent = [Target("later", BEHIND, 0), Target("shapes", BEHIND, 0, context="hot-dy"), Target("shapes", BEHIND, 0)]
    assert [cells[2:] for cells in found(monkeypatch, [source], *absent)] == [
        ["-", "-", "not measured"],
        ["-", "-", "not in this run"],
        ["1", "3 of 3", "missed"],
    ]


def test_every_target_is_of_a_run_of_the_plan_that_measures_its_context():
    runs = read_plan().runs
    for target in TARGETS:
        settings = runs[target.run].settings
        assert target.context == "cold" or target.context in settings.context
        assert target.impl == "triton-inhouse" or target.impl in (settings.impls or "")
