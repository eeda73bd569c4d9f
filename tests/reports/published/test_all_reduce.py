"""The tables of a run beside an all-reduce, from numbers that are easy to check."""

from harness.cases import NormCase
from harness.records.published_plan import Plan
from reports.published.all_reduce import section
from reports.published.sources import Source
from tests.reports.published.small_checkout import publish
from tests.results_factory import helpers, in_contexts, results, row

PLAN = Plan.model_validate({"runs": {}, "kept": {"two": {"about": "two shapes", "because": "of an example"}}})


def written(folder, twins=True, context="beside:8,all-reduce"):
    """The section of one published file: of each case, the add and the A/A pair are there or not."""
    rows = []
    for cols, fast in (1024, "ours"), (2048, "theirs"):
        case = NormCase("rms", 32768, cols)
        timed = [row("torch-eager", 100.0, case), row("ours", 40.0, case), row("theirs", 50.0, case)]
        rows += in_contexts(
            [*timed, *(helpers(100.0, 30.0, case) if twins else [])],
            beside_8=1.1,
            all_reduce=lambda impl, fast=fast: 1.2 if impl == fast else 1.05 if impl == "torch-eager" else 2.0,
        )
    path = folder / "h200/two.jsonl.bz2"
    publish(results(*rows, context=context), path, "h200")
    return section([Source("h200", "two", "two shapes", path, PLAN)], PLAN)


def test_times_stand_beside_those_alone(tmp_path):
    text = written(tmp_path)
    assert text.startswith("On two NVIDIA H200 of one host, two shapes; measured at revision abc1234")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "| case | ours | theirs | torch-eager |" in lines
    assert "| rms-32768x1024-bf16 | **52.7** (1.20) | 109.9 (2.00) | 115.4 (1.05) |" in lines
    assert "| rms-32768x2048-bf16 | 87.9 (2.00) | **65.9** (1.20) | 115.4 (1.05) |" in lines
    assert "| ours | rms | 1.10 (1.10) | 1.55 (2.00) |" in lines


def test_who_is_first_and_what_the_kernel_beside_misses_is_said(tmp_path):
    text = written(tmp_path)
    cases = "ours in 1, theirs in 1 (rms-32768x2048-bf16)."
    assert f"- Smallest median beside an all-reduce, of 2 cases: {cases}\n" in text
    # Of 6 rows, two take 1.2 / 1.1 times as long, two 2.0 / 1.1, and torch-eager's 1.05 / 1.1: less.
    assert "- `beside:8` underestimates an all-reduce in 4 of 6 rows" in text
    assert "takes 1.24 times as long as beside the kernel (geometric mean; 0.95 to 1.82)." in text


def test_without_a_pair_small_differences_are_none(tmp_path):
    assert "No A/A pair was measured, so that small differences may be none." in written(tmp_path, twins=False)


def test_a_run_without_an_all_reduce_is_left_out(tmp_path):
    assert written(tmp_path, context="beside:8").strip() == ""
