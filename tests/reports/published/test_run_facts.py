"""What the page knows of a run is what the comparison says."""

import json
from dataclasses import replace

import pytest

from harness.cases import NormCase
from harness.results.published.planned import Plan, read_plan
from reports.published.case_words import dtype_in_words, variant_in_words
from reports.published.measure_again import measure_again
from reports.published.run_facts import COLUMNS, TEXTS, _common_tail, run_facts
from reports.published.sources import sources
from tests.reports.published.small_checkout import make, publish
from tests.reports.test_training_step import beside, step

PLAIN = NormCase("rms", 8192, 4096)
LAYER = NormCase("layer", 4096, 2048, bias=True)


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    checkout = make(tmp_path_factory.mktemp("facts"))
    found = sources(read_plan(checkout / "results/plan.toml"), checkout / "results")
    assert [source.name for source in found] == ["timed", "again", "verified"]
    return json.loads(json.dumps(run_facts(found[0])))


def rows(facts, case):
    """The rows of a case by implementation, with texts in place of their numbers."""
    named = [dict(zip(COLUMNS, entry, strict=True)) for entry in case["entries"]]
    for fields in named:
        fields |= {name: facts["texts"][fields[name]] for name in TEXTS if fields[name] is not None}
    return {fields["impl"]: fields for fields in named}


def test_groups_are_what_a_reader_chooses(facts):
    chosen = [(group["norm"], group["variant"], group["dtype"], group["context"]) for group in facts["groups"]]
    kinds = [("rms", "plain", "bf16"), ("rms", "residual", "bf16"), ("layer", "plain", "fp16, weight fp32")]
    assert chosen == [(*kind, context) for context in ("cold", "graph") for kind in kinds]
    assert [case["shape"] for case in facts["groups"][0]["cases"]] == ["32768 x 1024", "16384 x 2048", "8192 x 4096"]
    assert facts["groups"][0]["shown"] == ["triton-inhouse", "quack", "liger", "torch-eager"]


def test_the_command_of_a_case_and_that_of_its_run_are_whole(facts, tmp_path):
    """The implementations stand once, in the run's; a run of one case has all but the first word there."""
    (found, *_) = sources(read_plan(make(tmp_path) / "results/plan.toml"), tmp_path / "results")
    whole = [measure_again(case.case, found.results.run) for case in found.comparison.cases] * 2  # of two contexts
    assert sorted(case["again"] + facts["again"] for group in facts["groups"] for case in group["cases"]) == sorted(
        whole
    )
    assert "--impls" in facts["again"]
    assert all("--impls" not in case["again"] for group in facts["groups"] for case in group["cases"])
    assert _common_tail(["normbwd bench --a 1"]) == " bench --a 1"
    assert _common_tail([]) == ""


def test_rows_have_what_their_standing_allows(facts):
    found = rows(facts, facts["groups"][0]["cases"][0])
    fastest = found["quack"]
    assert (fastest["standing"], fastest["status"], fastest["verdict"]) == ("ranked", "nondeterministic", "faster")
    assert fastest["us_low"] <= fastest["us"] <= fastest["us_high"]
    assert float(fastest["gbps_low"]) <= float(fastest["gbps"]) <= float(fastest["gbps_high"])
    assert found["triton-inhouse"]["speedup"] == "1.996 [1.992, 2.008]"
    assert found["triton-inhouse"]["rho"] == ["1.00", "1.00"]
    assert found["torch-eager"]["speedup"] is None
    assert found["compiled"] | {"us": None, "gbps": None, "why": "dweight is off by rho 4.2"} == found["compiled"]
    assert found["apex"]["status"] == "missing"


def test_answer_says_who_is_fastest_and_by_how_much(facts):
    first, second, third = facts["groups"][0]["cases"]
    assert first["answer"].startswith("quack is fastest: 1.1")
    assert second["answer"] == "quack is first; triton-inhouse cannot be told from it."
    assert third["answer"].startswith("triton-inhouse is fastest: 1.1")


def test_another_context_has_its_own_times(facts):
    cold, graph = (rows(facts, facts["groups"][n]["cases"][0]) for n in (0, 3))
    assert float(graph["quack"]["us"]) == pytest.approx(1.1 * float(cold["quack"]["us"]), rel=0.01)
    assert (graph["liger"]["status"], graph["liger"]["us"]) == ("unsupported", None)


def test_host_has_no_bandwidth_and_waiting_is_said(tmp_path):
    publish(step(), tmp_path / "h200/steps.jsonl.bz2", "h200")
    plan = Plan.model_validate({"runs": {"steps": {"about": "in a step", "bench": {"shapes": "8192x4096"}}}})
    facts = run_facts(sources(plan, tmp_path)[0])
    by_context = {group["context"]: group["cases"][0] for group in facts["groups"] if group["norm"] == "rms"}
    assert list(by_context) == ["cold", "graph", "beside:8", "host"]
    quack = rows(facts, by_context["host"])["quack"]
    assert (quack["us"] is None, quack["gbps"]) == (False, None)
    assert rows(facts, by_context["beside:8"])["triton-inhouse"]["why"].startswith("waits for other kernels")
    assert rows(facts, by_context["cold"])["quack"]["gbps"]


def test_a_few_samples_that_waited_are_told_without_the_badge_of_waiting(tmp_path):
    publish(beside(1), tmp_path / "h200/steps.jsonl.bz2", "h200")
    plan = Plan.model_validate({"runs": {"steps": {"about": "in a step", "bench": {"shapes": "8192x4096"}}}})
    facts = run_facts(sources(plan, tmp_path)[0])
    (found,) = (rows(facts, group["cases"][0])["quack"] for group in facts["groups"] if group["context"] == "beside:8")
    why = "waited for other kernels in 1 of 40 samples, fewer than half: until the one beside had ended"
    assert found["why"] == why  # site.js has the badge where this starts with `waits`


def test_words_tell_cases_apart():
    assert variant_in_words(replace(LAYER, bias=False)) == "plain, no bias"
    assert variant_in_words(replace(PLAIN, weight=False, features=("residual",))) == "residual, no weight"
    assert variant_in_words(replace(PLAIN, zero_centred=True, eps=1e-6)) == "plain, zero-centred, eps 1e-06"
    assert dtype_in_words(replace(PLAIN, weight_dtype="fp32")) == "bf16, weight fp32"
