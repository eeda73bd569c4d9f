"""What a step of each model calls, checked against figures that follow from its configuration in another way."""

from pathlib import Path

from harness.cases.models import MODELS, TOKENS, cases_of_models
from harness.cases.suites import SUITES
from harness.cases.variants import FEATURES

DOCUMENT = (Path(__file__).parents[2] / "docs" / "variants.md").read_text(encoding="utf-8")


def calls(name):
    (model,) = (model for model in MODELS if model.name == name)
    return {call.case(8192).key: call.times for call in model.calls}


def test_every_model_has_norms_and_a_source():
    assert [model.name for model in MODELS] == [
        *("Llama 3 8B", "Llama 3 70B", "Qwen3 8B", "Qwen3 235B", "Gemma 3 27B"),
        *("DeepSeek-V3", "gpt-oss 120B", "nanochat d20", "Mamba2 2.7B"),
    ]
    assert all(model.calls and "/" in model.source for model in MODELS)


def test_a_qwen_has_queries_and_keys_in_one_projection():
    assert calls("Qwen3 8B") == {
        "rms-8192x4096-bf16-residual": 72,
        "rms-8192x4096-bf16": 1,
        "rms-262144x128-bf16-qk32of6144": 36,
        "rms-65536x128-bf16-qk8of6144": 36,
    }


def test_the_suite_has_each_case_once():
    cases = cases_of_models()
    assert SUITES["models"].cases == cases
    assert len({case.key for case in cases}) == len(cases)
    assert {call.case(tokens) for tokens in TOKENS for model in MODELS for call in model.calls} == set(cases)


def test_the_document_has_each_variant():
    rows = {line.split("|")[1].strip() for line in DOCUMENT.splitlines() if line.startswith("| ")}
    assert set(FEATURES) <= rows
