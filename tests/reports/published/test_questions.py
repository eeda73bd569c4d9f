"""The answers to questions of the field, from a run that is easy to check."""

import pytest

from harness.cases import NormCase
from harness.records.published_plan import Plan, read_plan
from reports.published.questions import QUESTIONS, section
from reports.published.sources import Source
from tests.reports.published.small_checkout import publish
from tests.results_factory import helpers, in_contexts, results, row

PLAN = Plan.model_validate({"runs": {"fast-llm": {"about": "two shapes", "bench": {"shapes": "8x8"}}}})
CASES = [NormCase("rms", 8192, 4096), NormCase("rms", 4096, 8192)]


@pytest.fixture
def answers(tmp_path):
    """The answers by what is asked about, from a run of two cases, in `several` contexts; QuACK takes `second_us`."""

    def answer(second_us=80.0, several=False):
        rows = []
        for case, us in zip(CASES, (50.0, second_us), strict=True):
            rows += [row("torch-eager", 100.0, case), row("triton-inhouse", 40.0, case), row("quack", us, case)]
            rows += [row("quack-fused-sum", case=case, status="missing", reason="no release has it")]
            rows += helpers(100.0, 30.0, case)
        path = tmp_path / "h200/fast-llm.jsonl.bz2"
        run = results(*in_contexts(rows, graph=1.1), context="graph") if several else results(*rows)
        publish(run, path, "h200")
        text = section([Source("h200", "fast-llm", "two shapes", path, PLAN)], PLAN)
        lines = [line for line in text.splitlines() if line.startswith("- **")]
        return dict(zip((question.about for question in QUESTIONS), lines, strict=True))

    return answer


def test_who_is_first_and_how_far_behind_the_others_are(answers):
    assert answers()["quack-fused-sum", "quack"].endswith(
        "make it the first?** quack-fused-sum: missing; quack takes 1.58 times as long as the fastest (1.25 to 2.00, "
        "2 cases). Fastest: triton-inhouse in 2 of 2. From fast-llm (abc1234, stale)."
    )


def test_a_tie_is_nobodys_lead(answers):
    said = "Fastest: triton-inhouse in 1 of 2, quack and triton-inhouse tied in 1."
    assert said in answers(40.1)["quack-fused-sum", "quack"]


def test_of_a_run_in_several_contexts_the_context_is_named(answers):
    assert (
        "** cold: quack-fused-sum: not in this run; quack takes 1.58 times"
        in answers(several=True)["quack-fused-sum", "quack"]
    )
    assert "cold" not in answers()["quack-fused-sum", "quack"]


def test_who_was_not_in_a_run_is_said_not_to(answers):
    assert answers()["fast-llm",].partition("** ")[2].startswith("fast-llm: not in this run.")


def test_a_run_that_is_not_there_is_not_measured(answers):
    assert answers()["transformer-engine-rocm",].endswith("** Not measured (run te-rocm).")


def test_every_question_is_of_a_run_of_the_plan():
    assert {question.run for question in QUESTIONS} <= read_plan().runs.keys()
