from harness.records.published_plan import Plan
from reports.published.all_reduce import margins
from reports.published.sources import Source
from tests.reports.published.small_checkout import publish
from tests.results_factory import helpers, in_contexts, results, row

PLAN = Plan.model_validate({"runs": {"margin": {"about": "beside others", "bench": {"shapes": "8x8"}}}})


def test_times_in_each_context_stand_over_those_alone(tmp_path):
    rows = [row("torch-eager", 100.0), row("triton-inhouse", 40.0), *helpers(100.0, 30.0)]
    path = tmp_path / "h200/margin.jsonl.bz2"
    publish(results(*in_contexts(rows, graph=1.5), context="graph"), path, "h200")
    text = margins([Source("h200", "margin", "beside others", path, PLAN)], PLAN)
    (line,) = (line for line in text.splitlines() if line.startswith("| triton-inhouse"))
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["triton-inhouse", "rms", "1.50 (1.50)"]


def test_without_the_run_there_is_nothing():
    assert margins([], PLAN).strip() == ""
