"""What the page knows of a run is what the comparison says."""

import json
from dataclasses import replace
from itertools import zip_longest

import pytest

from harness.cases import NormCase
from harness.records.published_plan import Plan, read_plan
from reports.published.run_facts import COLUMNS, dtype_text, run_facts, variant_text
from reports.published.site_page import shared_once
from reports.published.sources import Source, sources
from tests.reports.published.small_checkout import CASES, make, publish, timed
from tests.reports.test_training_step import beside, step
from tests.results_factory import results, row, verification

PLAIN = NormCase("rms", 8192, 4096)
LAYER = NormCase("layer", 4096, 2048, bias=True)


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    checkout = make(tmp_path_factory.mktemp("facts"))
    found = sources(read_plan(checkout / "results/plan.toml"), checkout / "results")
    assert [source.name for source in found] == ["timed", "again", "verified"]
    return json.loads(json.dumps(run_facts(found[0])))


def rows(case):
    """What is known of each implementation on a case, as the script of the page reads it."""
    return {entry[0]: dict(zip_longest(COLUMNS, entry)) for entry in case["entries"]}


def test_current_runs_come_before_stale_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(Source, "stale", property(lambda source: source.name == "old"))
    entries = {name: {"about": name, "bench": {}} for name in ("old", "new")}
    for name in entries:
        publish(step(), tmp_path / f"h200/{name}.jsonl.bz2", "h200")
    assert [each.name for each in sources(Plan.model_validate({"runs": entries}), tmp_path)] == ["new", "old"]


def test_groups_are_what_a_reader_chooses(facts):
    chosen = [(group["norm"], group["variant"], group["dtype"], group["context"]) for group in facts["groups"]]
    kinds = [("rms", "plain", "bf16"), ("rms", "residual", "bf16"), ("layer", "plain", "fp16, weight fp32")]
    assert chosen == [(*kind, context) for context in ("cold", "graph") for kind in kinds]
    assert [case["shape"] for case in facts["groups"][0]["cases"]] == ["32768 x 1024", "16384 x 2048", "8192 x 4096"]


def test_rows_have_what_their_standing_allows(facts):
    found = rows(facts["groups"][0]["cases"][0])
    fastest = found["quack"]
    assert (fastest["standing"], fastest["status"], fastest["verdict"]) == ("ranked", "nondeterministic", "faster")
    assert fastest["us_low"] <= fastest["us"] <= fastest["us_high"]
    assert float(fastest["gbps"]) > 1000
    assert found["triton-inhouse"]["speedup"] == "1.996 [1.992, 2.008]"
    assert found["triton-inhouse"]["rho"] == ["1.00", "1.00"]
    baseline = found["torch-eager"]
    assert [baseline[name] for name in ("us", "speedup", "gbps", "percent_of_add")] == ["140.6", None, "1433", "35.0"]
    assert found["compiled"] | {"us": None, "gbps": None, "why": "dweight is off by rho 4.2"} == found["compiled"]
    assert found["apex"]["status"] == "missing"


def test_a_gradient_without_a_figure_keeps_its_place(tmp_path):
    known = verification(LAYER)
    only = known.model_copy(update={"tensors": {"dweight": known.tensors["dweight"]}})
    run = results(row("torch-eager", 20.0, LAYER), row("quack", 10.0, LAYER, verification=only))
    publish(run, tmp_path / "h200/few.jsonl.bz2", "h200")
    plan = Plan.model_validate({"runs": {"few": {"about": "few gradients", "bench": {"shapes": "4096x2048"}}}})
    facts = run_facts(sources(plan, tmp_path)[0])
    (group,) = facts["groups"]
    assert group["gradients"] == ["dx", "dw", "db"]
    assert rows(group["cases"][0])["quack"]["rho"] == [None, "1.00", None]


def test_answer_says_who_is_fastest_and_by_how_much(facts):
    first, second, third = facts["groups"][0]["cases"]
    assert first["answer"].startswith("quack is fastest: 1.1")
    assert second["answer"] == "quack is first; triton-inhouse cannot be told from it."
    assert third["answer"].startswith("triton-inhouse is fastest: 1.1")


def test_nobody_is_fastest_while_variants_are_missing_and_what_is_outside_its_purpose_leads_nothing(tmp_path):
    run = timed(CASES[:1])
    fields = {"quack": {"outside": "made for Blackwell"}, "liger": {"for_speed": ["liger-cutedsl"]}}
    impls = [impl.model_copy(update=fields.get(impl.name, {})) for impl in run.run.implementations]
    run = replace(run, run=run.run.model_copy(update={"implementations": impls}))
    publish(run, tmp_path / "h200/a.jsonl.bz2", "h200")
    plan = Plan.model_validate({"runs": {"a": {"about": "one", "bench": {"shapes": "32768x1024"}}}})
    facts = run_facts(sources(plan, tmp_path)[0])
    assert facts["groups"][0]["cases"][0]["answer"].startswith("triton-inhouse is first: 1.497")
    assert facts["outside"] == {"quack": "made for Blackwell"}


def test_host_has_no_bandwidth_and_waiting_is_said(tmp_path):
    publish(step(), tmp_path / "h200/steps.jsonl.bz2", "h200")
    plan = Plan.model_validate({"runs": {"steps": {"about": "in a step", "bench": {"shapes": "8192x4096"}}}})
    facts = run_facts(sources(plan, tmp_path)[0])
    by_context = {group["context"]: group["cases"][0] for group in facts["groups"] if group["norm"] == "rms"}
    assert list(by_context) == ["cold", "graph", "beside:8", "host"]
    quack = rows(by_context["host"])["quack"]
    assert (quack["us"] is None, quack["gbps"]) == (False, None)
    assert rows(by_context["beside:8"])["triton-inhouse"]["why"].startswith("waits for other kernels")
    assert rows(by_context["cold"])["quack"]["gbps"]


def test_a_few_samples_that_waited_are_told_without_the_badge_of_waiting(tmp_path):
    publish(beside(1), tmp_path / "h200/steps.jsonl.bz2", "h200")
    plan = Plan.model_validate({"runs": {"steps": {"about": "in a step", "bench": {"shapes": "8192x4096"}}}})
    facts = run_facts(sources(plan, tmp_path)[0])
    (found,) = (rows(group["cases"][0])["quack"] for group in facts["groups"] if group["context"] == "beside:8")
    why = "waited for other kernels in 1 of 40 samples, fewer than half: until the one beside had ended"
    assert found["why"] == why  # site.js has the badge where this starts with `waits`


def test_what_repeats_is_shared_and_found_again():
    again = ["triton-inhouse", ["1.00", None]]
    data = {
        "runs": [again, {"entry": list(again)}],
        "rows": [8, 0, True],
        "texts": ["triton-inhouse", "once", "-5", ""],
    }
    packed = json.loads(json.dumps(shared_once(data)))

    def unpack(value):
        if isinstance(value, int) and value < 0:
            return unpack(packed["shared"][~value])
        if isinstance(value, dict):
            return {name: unpack(inner) for name, inner in value.items()}
        return [unpack(inner) for inner in value] if isinstance(value, list) else value

    assert unpack(packed["data"]) == data
    assert not {"triton-inhouse", "1.00"} & set(json.dumps(packed["data"]).split('"'))


def test_words_tell_cases_apart():
    assert variant_text(replace(LAYER, bias=False)) == "plain, no bias"
    assert variant_text(replace(PLAIN, weight=False, features=("residual",))) == "residual, no weight"
    assert variant_text(replace(PLAIN, zero_centred=True, eps=1e-6)) == "plain, zero-centred, eps 1e-06"
    assert dtype_text(replace(PLAIN, weight_dtype="fp32")) == "bf16, weight fp32"
