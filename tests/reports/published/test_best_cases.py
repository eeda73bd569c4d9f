from harness.cases import NormCase
from harness.records.published_plan import read_plan
from reports.published.best_cases import placings, section
from reports.published.sources import sources
from tests.reports.published.small_checkout import CASES, make, publish
from tests.results_factory import CASE, helpers, results, row, selftest


def found(tmp_path, run=None):
    checkout = make(tmp_path)
    if run is not None:
        publish(run, checkout / "results/h200/timed.jsonl.bz2", "h200")
    plan = read_plan(checkout / "results/plan.toml")
    return sources(plan, checkout / "results"), plan


def test_best_case_is_that_of_the_largest_lead(tmp_path):
    """Times are 2 for the in-house kernel and 1.75, 2, 2.25, 2.5 and 2.75 for quack, from case to case."""
    files, plan = found(tmp_path)
    text = section(files, plan)
    assert (
        "by these runs (and the revision of each): timed (abc1234, stale)." in text
    )  # it has all cases of the other one
    (inhouse,) = (line for line in text.splitlines() if line.startswith("| triton-inhouse"))
    assert CASES[4].key in inhouse
    assert inhouse.split("|")[-2].strip() in ("1.37", "1.38")
    (quack,) = (line for line in text.splitlines() if line.startswith("| quack"))
    assert CASES[0].key in quack
    assert quack.split("|")[-2].strip() in ("1.14", "1.15")


def test_one_library_alone_is_best_nowhere(tmp_path):
    alone = results(row("quack", 50.0), *helpers(100.0, 40.0))
    files, _ = found(tmp_path, alone)
    assert list(placings(files[0])) == []


def test_case_without_a_fastest_is_left_out(tmp_path):
    """Where something is too fast to be ranked, whoever ranks may be slower than it."""
    small = NormCase("rms", 64, 64)
    rows = [row("quack", 5.0, small), row("triton-inhouse", 50.0, small), row("torch-eager", 60.0, small)]
    large = [row("quack", 50.0), row("torch-eager", 100.0)]
    rows += [*helpers(60.0, 4.0, case=small), *large, *helpers(100.0, 40.0)]
    files, _ = found(tmp_path, results(*rows, selftests=[selftest()]))
    assert {placing.case for placing in placings(files[0])} == {CASE.key}
