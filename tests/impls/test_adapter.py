"""The adapter of the in-house kernels: what it answers for a case, and the launches that it offers for tuning."""

import dataclasses
import json
import os
from types import SimpleNamespace

import pytest
import torch

from harness.cases import NormCase, make_inputs
from harness.errors import UnsupportedError
from impls import triton_inhouse
from impls.inhouse.device import gpu_of
from impls.inhouse.problem import LAUNCHES, problem_of
from impls.inhouse.regimes.choice import REGIMES, choose, neighbours
from impls.inhouse.regimes.shared import Shared
from impls.inhouse.tuned import from_fields
from impls.triton_inhouse import configs, prepare
from tests.impls.inhouse_cases import cpu_case, gradients, runs_of

CASE = cpu_case("rms", 9, 256)


@pytest.fixture
def config():
    """The first configuration beside the default; there is none where tests are only collected for a GPU."""
    return list(configs(CASE).values())[1]


def test_the_adapter_answers_for_its_cases(monkeypatch):
    inputs = make_inputs(cpu_case("layer", 5, 24, bias=True), seed=12)
    grads = triton_inhouse.prepare(inputs)()
    for got, wanted in zip((grads.dx, grads.dweight, grads.dbias), gradients(inputs), strict=True):
        assert torch.equal(got, wanted)
    assert triton_inhouse.unsupported(inputs.case) is None
    assert "interpreter" in triton_inhouse.untimed(inputs.case)
    assert triton_inhouse.untimed(NormCase("rms", 5, 24)) is None
    for inputs_kind in ("subnormal-x", "subnormal-dy"):  # of which Triton's interpreter loses bits
        subnormal = dataclasses.replace(CASE, inputs=inputs_kind)
        assert "interpreter loses bits" in triton_inhouse.unsupported(subnormal)
        assert triton_inhouse.unsupported(dataclasses.replace(subnormal, dtype="fp32")) is None
        assert triton_inhouse.unsupported(dataclasses.replace(subnormal, device="cuda")) is None
    assert "131072" in triton_inhouse.unsupported(NormCase("rms", 1, 131073))
    monkeypatch.delitem(os.environ, "TRITON_INTERPRET")
    assert "TRITON_INTERPRET" in triton_inhouse.unsupported(inputs.case)


def test_of_frozen_weights_dx_alone_is_computed():
    inputs, residual = (
        make_inputs(cpu_case("rms", 5, 24, features=each), 3) for each in (["frozen"], ["frozen", "residual"])
    )
    assert prepare(inputs)().tensors().keys() == prepare(residual)().tensors().keys() == {"dx"}
    assert torch.equal(prepare(inputs)().dx, gradients(inputs)[0])


def test_configs_are_the_choice_and_its_neighbours():
    offered = configs(CASE)
    problem, gpu = problem_of(CASE), gpu_of(torch.device("cpu"))
    assert next(iter(offered)) == "default"
    assert [from_fields(config) for config in offered.values()] == [*neighbours(problem, gpu, choose(problem, gpu))]
    assert json.loads(json.dumps(offered)) == offered
    assert list(offered)[1] == "warps=2"
    assert offered["default"] | {"warps": 2} == offered["warps=2"]


@pytest.mark.parametrize(
    "change", [{"inputs": "strided-x"}, {"cols": 131073}, {"rows": 0}, {"features": ("frozen",)}], ids=str
)
def test_no_config_where_nothing_is_to_be_tuned(change):
    assert configs(dataclasses.replace(CASE, **change)) == {}


def test_no_config_beside_a_file_of_launches(monkeypatch):
    monkeypatch.setenv(LAUNCHES, "launches.json")
    with pytest.raises(ValueError, match=f"unset {LAUNCHES}"):
        configs(CASE)


def test_a_config_is_what_runs(monkeypatch, config):
    inputs = make_inputs(CASE, seed=3)
    wanted = prepare(inputs)()
    ran = runs_of(from_fields(config), monkeypatch)
    assert torch.equal(prepare(inputs, config)().dx, wanted.dx)
    assert set(ran) == {from_fields(config)} != {choose(problem_of(CASE), gpu_of(torch.device("cpu")))}


def test_a_config_that_breaks_a_rule_is_unsupported(config):
    """Even if it kept to them on the inputs that it was measured on."""
    shared = Shared(2, 2, 1, 1, 1, cols=128).as_fields()
    for wrong, why in ((config | {"chunks": 3}, "3 x 64 columns do not fit"), (shared, "in words")):
        with pytest.raises(UnsupportedError, match=f"must not run here.*{why}"):
            prepare(make_inputs(CASE, seed=3), wrong)


@pytest.mark.parametrize(
    ("spilled", "own", "why"),
    [(0, 0, None), (12, 0, "spills 12 registers"), (12, 10, "spills 12 registers, the default 10"), (8, 10, None)],
)
def test_a_config_that_spills_more_is_unsupported(monkeypatch, spilled, own, why, config):
    inputs = make_inputs(CASE, seed=3)
    default = choose(problem_of(CASE), gpu_of(torch.device("cpu")))

    def calls(launch, tensors):
        spills = (0, own if launch == default else spilled)
        return [SimpleNamespace(start=lambda n_spills=each: SimpleNamespace(n_spills=n_spills)) for each in spills]

    for regime in REGIMES:
        monkeypatch.setattr(regime, "calls", calls)
    if why is None:
        assert callable(prepare(inputs, config))
        return
    with pytest.raises(UnsupportedError) as caught:
        prepare(inputs, config)
    assert str(caught.value) == why
