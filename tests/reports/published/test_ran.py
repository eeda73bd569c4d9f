"""What became of each implementation in the first run of the plan."""

import pytest

from harness.cases import NormCase
from harness.results.published.planned import Plan
from reports.published import ran
from reports.published.sources import Source
from tests.reports.published.small_checkout import publish
from tests.results_factory import helpers, results, row, verification

PLAN = Plan.model_validate({"runs": {"first": {"about": "two shapes", "bench": {"shapes": "8x8"}}}})
CASES = [NormCase("rms", 8192, 4096), NormCase("layer", 4096, 2048, bias=True)]
TWO = verification(CASES[1], error_class="two")


@pytest.fixture
def source(tmp_path):
    rows = [each for case in CASES for each in (row("torch-eager", 100.0, case), *helpers(100.0, 30.0, case))]
    rows += [row("quack", 50.0, CASES[0]), row("quack", 50.0, CASES[1], verification=TWO)]
    rows += [row("liger", None, CASES[0], status="wrong", reason="dx is off\nby far"), row("liger", 60.0, CASES[1])]
    rows += [row("apex", None, case, status="missing", reason="not installed") for case in CASES]
    path = tmp_path / "h200/first.jsonl.bz2"
    publish(results(*rows), path, "h200")
    return Source("h200", "first", "two shapes", path, PLAN)


def test_outcomes_are_counted_by_norm_and_reasons_follow(source):
    lines = [" ".join(line.replace("|", " ").split()) for line in ran.section([source], PLAN).splitlines()]
    assert "torch-eager 1 right 1 right" in lines
    assert "liger 1 wrong 1 right" in lines
    assert "quack 1 right 1 right: dx (+2), dweight (+2), dbias (+2)" in lines
    assert "- liger: wrong in 1 case, first rms-8192x4096-bf16: dx is off by far." in lines
    assert any(line.startswith("Missing: apex ") for line in lines)


def test_those_that_failed_are_named_in_a_sentence(source):
    assert ran.failed(source) == "Not ranked where it failed: liger (wrong in 1 of 2 cases)."
