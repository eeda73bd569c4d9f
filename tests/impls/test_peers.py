"""The adapters of other libraries, against stand-ins for these: what they take, how they call it, what they note."""

from __future__ import annotations

import dataclasses
import re
import sys

import pytest
import torch

from harness.cases import UnsupportedError
from harness.cases.variants import with_features
from harness.verify import precision
from harness.worker.configured import candidates
from impls.cuda_peers import cudnn
from impls.dsl_peers import helion, quack
from impls.libraries import cudnn_plans
from impls.libraries.recorded import recorded
from impls.triton_peers import transformer_engine_rocm
from tests.impls.peer_cases import FAST, IMPLS, LAYER, RMS, inputs_of, on_cpu
from tests.impls.peer_tables import CHANGES, PEERS, ROWS, WIDE_RMS, plain_cases, variant_cases
from tests.impls.stand_ins import CONFIGS, LIGER_BACKENDS, Graph, cudnn_ops, modules


@pytest.fixture
def stand_ins(monkeypatch):
    """Every GPU library replaced in sys.modules; nothing is compiled."""
    for name, made in modules().items():
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setattr(torch.ops, "cudnn", cudnn_ops(), raising=False)
    monkeypatch.setattr(quack, "compile_alone", lambda function: function)
    monkeypatch.setattr(cudnn_plans, "_current_stream", lambda: 0)
    operators = sys.modules["transformer_engine.pytorch.triton_kernels.norms_common"]
    monkeypatch.setattr(transformer_engine_rocm, "_operators", lambda: operators)
    for cached in (quack._compiled, quack._compiled_finish, helion._kernel):
        cached.cache_clear()


def runs_exactly(name, inputs):
    """Run a backward twice, each time with dy as it was, and compare every gradient with the exact one."""
    peer, dy = IMPLS[name], inputs.dy.clone()
    backward = peer.prepare(inputs)
    for _ in range(2):
        inputs.dy.copy_(dy)
        grads = backward()
        assert peer.in_place or torch.equal(inputs.dy, dy)
        checks = precision.check(dataclasses.replace(inputs, dy=dy), grads)
        assert {each.error_class for each in checks.values()} == {"exact"}


# What is taken, and why not


@pytest.mark.parametrize("name", [*PEERS, "torch-eager"])
def test_an_adapter_takes_what_the_document_says(name, monkeypatch):
    monkeypatch.setattr("impls.cuda_peers.cudnn.version_of", lambda package: "9.28.1")
    cases = [*plain_cases(name), *(variant_cases(name) if name in PEERS else [])]
    assert [case.key for case, taken in cases if taken != (IMPLS[name].unsupported(case) is None)] == []


def test_every_implementation_is_in_the_document():
    assert set(ROWS) == set(IMPLS)


def test_list_impls_has_a_line_for_each():
    summaries = {name: item.summary for name, item in IMPLS.items()}
    assert len(set(summaries.values())) == len(summaries)
    assert all(15 < len(summary) <= 120 for summary in summaries.values())
    assert summaries["liger-cutedsl"] == "as liger, but implementation=nvidia-cutedsl, module=cutedsl"


ROWLESS = ("apex-fused", "cudnn", "fast-llm", "fla", "flag-gems", "flash-attn-triton", "helion", "mamba", "oink")
REFUSALS = [
    *[(name, on_cpu(FAST), "GPU") for name in PEERS],
    *[(name, dataclasses.replace(FAST, rows=0), "row") for name in (*ROWLESS, "tilegym", "transformer-engine")],
    *[(name, dataclasses.replace(RMS, cols=16385), "65536 bytes") for name in ("mamba", "fla", "flash-attn-triton")],
    *[(name, dataclasses.replace(RMS, cols=65537), "65536") for name in ("liger", "tilegym")],
    ("fast-llm", dataclasses.replace(RMS, cols=16385), "65536 bytes"),
    ("flash-attn-cuda", dataclasses.replace(RMS, cols=8200), "at most 8192"),
    ("quack", dataclasses.replace(RMS, dtype="bf16", cols=15), "even"),
    ("quack", dataclasses.replace(RMS, cols=131073), "131072"),
    ("quack-tuned", RMS, "64 columns"),
    ("quack-tuned", dataclasses.replace(WIDE_RMS, rows=0), "zero rows"),
    ("quack-fused-sum", dataclasses.replace(RMS, cols=8193), "8192"),
    ("apex-fast", LAYER, "hidden sizes"),
    ("cudnn", dataclasses.replace(LAYER, rows=65537, cols=32768), "no engine for more than 2147483647 elements"),
    ("oink", dataclasses.replace(RMS, cols=20), "multiples of 8"),
    ("liger", with_features(dataclasses.replace(RMS, weight=False), ["residual"]), "always has a weight"),
    ("fla", with_features(dataclasses.replace(RMS, weight=False), ["gated"]), "always has a weight"),
    ("torch-eager", dataclasses.replace(on_cpu(LAYER), weight_dtype="bf16"), "x's dtype"),
]


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _, _ in REFUSALS))
def test_a_refusal_says_why(name):
    said = {case.key: (IMPLS[name].unsupported(case) or "", reason) for of, case, reason in REFUSALS if of == name}
    assert {key: answer for key, (answer, reason) in said.items() if reason not in answer} == {}


@pytest.mark.parametrize(("capability", "compiles"), [((9, 0), False), ((10, 0), True), ((12, 0), True)])
def test_oinks_residual_is_refused_before_blackwell(capability, compiles, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert IMPLS["oink"].unsupported(RMS) is None
    refusal = IMPLS["oink"].unsupported(with_features(RMS, ["residual"]))
    assert refusal is None if compiles else "compute capability 10.0" in refusal


# How a library is called

RUNS = [
    pytest.param(name, case, id=f"{name}-{case.key}")
    for name in PEERS
    for case, taken in [*plain_cases(name), *variant_cases(name)]
    if taken
]


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(("name", "case"), RUNS)
def test_a_library_is_called_as_it_is_declared(name, case):
    runs_exactly(name, inputs_of(case))
    assert all(isinstance(note, str) for note in IMPLS[name].notes(case))


LAYOUTS = [
    pytest.param(name, dataclasses.replace(case, inputs=kind), id=f"{name}-{case.norm}-{kind}")
    for name in PEERS
    if not name.startswith(("liger", "apex-fused"))  # which are handed x as it is
    for case, taken in plain_cases(name)[:: len(CHANGES)]
    if taken
    for kind in ("strided-x", "transposed-dy", "3-d")
]


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(("name", "case"), LAYOUTS)
def test_a_library_of_rows_is_handed_rows(name, case):
    runs_exactly(name, inputs_of(case))


@pytest.mark.usefixtures("stand_ins")
def test_a_version_without_a_zero_centred_weight_says_so(monkeypatch):
    monkeypatch.setattr(sys.modules["flash_attn.ops.triton.layer_norm"], "layer_norm_fn", lambda x, weight, bias: x)
    with pytest.raises(UnsupportedError, match="this version of flash-attention has no zero-centred weight"):
        IMPLS["flash-attn-triton"].prepare(inputs_of(dataclasses.replace(RMS, zero_centred=True)))


def test_a_forward_that_records_something_else_is_refused():
    with pytest.raises(TypeError, match="MulBackward0, which is no autograd function of Python's"):
        recorded(inputs_of(RMS), lambda x, weight, bias: x * weight)


# What a dispatcher or a tuner chose


@pytest.mark.usefixtures("stand_ins")
def test_liger_says_which_kernels_its_dispatcher_took():
    narrow, wide = inputs_of(LAYER), inputs_of(dataclasses.replace(LAYER, rows=2, cols=8208))
    assert "cutedsl" in IMPLS["liger"].prepare(narrow).what
    assert IMPLS["liger"].prepare(wide).what == "liger_kernel.ops.layer_norm.LigerLayerNormFunction"
    assert IMPLS["liger-triton"].prepare(narrow).what == "liger_kernel.ops.layer_norm.LigerLayerNormFunction"
    assert IMPLS["liger"].prepare(inputs_of(RMS)).what == "liger_kernel.ops.rms_norm.LigerRMSNormFunction"
    with pytest.raises(UnsupportedError, match=r"hands this shape on to liger_kernel.ops.layer_norm"):
        IMPLS["liger-cutedsl"].prepare(wide)


@pytest.mark.usefixtures("stand_ins")
def test_what_ligers_dispatcher_does_not_have_here_is_unsupported(monkeypatch):
    monkeypatch.delitem(LIGER_BACKENDS, "nvidia-cutedsl")
    with pytest.raises(UnsupportedError, match="No 'nvidia-cutedsl' implementation"):
        IMPLS["liger-cutedsl"].prepare(inputs_of(LAYER))


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("case", [WIDE_RMS, dataclasses.replace(LAYER, cols=64)], ids=lambda case: case.key)
def test_what_is_tuned_says_what_was_chosen(case):
    assert IMPLS["quack-tuned"].prepare(inputs_of(case)).what == f"config: {CONFIGS[-1]}"
    assert IMPLS["helion-tuned"].prepare(inputs_of(case)).what == "Config(block_sizes=[32])"


@pytest.mark.usefixtures("stand_ins")
def test_what_tilegym_tuned_for_other_rows_is_forgotten():
    prepared = IMPLS["tilegym"].prepare(inputs_of(with_features(RMS, ["residual"])))
    assert prepared.what == "programs a multiprocessor: 4"


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("name", ["fla", "flash-attn-triton", "flag-gems"])
def test_what_triton_tuned_is_said_of_the_backward_alone(name):
    assert re.fullmatch(r"\w+(bwd|backward)_kernel: num_warps: 8", IMPLS[name].prepare(inputs_of(FAST)).what)


@pytest.mark.parametrize(("module", "widest"), [("norms_common", 8192), ("norms", 32768)])
def test_transformer_engines_triton_norm_says_where_it_keeps_every_row(module, widest, monkeypatch):
    monkeypatch.setattr(transformer_engine_rocm, "_operators", lambda: type(sys)(f"triton_kernels.{module}"))
    kept = "stores a partial gradient in fp32 of every row"
    cases = [dataclasses.replace(RMS, dtype="bf16", cols=cols) for cols in (widest, widest + 1)]
    assert [kept in transformer_engine_rocm.notes(case) for case in cases] == [False, True]
    assert transformer_engine_rocm.notes(dataclasses.replace(LAYER, cols=widest + 1)) == []


# What can be tuned by `normbwd tune`

NEAR = ["default", "num_threads=256, threads_per_row=16", "cluster_n=2, reload_x=smem", "smem_stages=3"]
SMALL_RMS = dataclasses.replace(RMS, cols=32)


@pytest.mark.usefixtures("stand_ins")
def test_quack_offers_its_tuners_launches_near_its_own():
    offered = IMPLS["quack"].configs
    assert list(offered(SMALL_RMS)) == list(offered(dataclasses.replace(LAYER, cols=32))) == NEAR
    assert offered(SMALL_RMS)["smem_stages=3"] == dataclasses.asdict(CONFIGS[-1])
    assert IMPLS["quack-tuned"].configs(SMALL_RMS) == {}


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("change", ["norms", "zero-centred", "all bf16"])
def test_quack_runs_with_a_configuration_past_its_tuner(change, number, monkeypatch):
    launched = []
    tuner = sys.modules["quack.rmsnorm"].rmsnorm_bwd_tuned
    fill = tuner.fn
    monkeypatch.setattr(tuner, "fn", lambda *a, **o: (launched.append(o["config"]), fill(*a, **o)))
    inputs = inputs_of(dataclasses.replace(SMALL_RMS, **CHANGES[change]))
    backward = candidates(IMPLS["quack"], 3)[number - 1].prepare(inputs)
    checks = precision.check(inputs, backward())
    assert {each.error_class for each in checks.values()} == {"exact"}
    config = IMPLS["quack"].configs(inputs.case)[NEAR[number]]
    assert [dataclasses.asdict(each) for each in launched] == [config] * 2


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("case", [FAST, dataclasses.replace(FAST, dtype="bf16"), WIDE_RMS], ids=lambda case: case.key)
def test_cudnn_offers_every_plan_and_runs_the_one_asked_for(case):
    assert IMPLS["cudnn"].configs(case) == {"default": {}} | {name: {"plan": name} for name in ("eng0", "eng1", "eng2")}
    first, second, third = candidates(IMPLS["cudnn"], 3)
    for candidate in (first, third):
        inputs = inputs_of(case)
        checks = precision.check(inputs, candidate.prepare(inputs)())
        assert {each.error_class for each in checks.values()} == {"exact"}
        assert Graph.built == candidate.config_of(case).name
    with pytest.raises(UnsupportedError, match="cuDNN cannot build plan eng1 here"):
        second.prepare(inputs_of(case))


@pytest.mark.usefixtures("stand_ins")
def test_a_plan_of_another_cudnn_is_unsupported():
    with pytest.raises(UnsupportedError, match="cuDNN has no plan eng9 of this shape here"):
        IMPLS["cudnn"].module.prepare(inputs_of(FAST), "operator", {"plan": "eng9"})


@pytest.mark.usefixtures("stand_ins")
def test_cudnn_adds_a_residual_in_one_graph_where_it_can(monkeypatch):
    case = with_features(dataclasses.replace(FAST, norm="rms", bias=False), ["residual"])
    monkeypatch.setattr(cudnn, "version_of", lambda _package: "9.19.0.56")
    assert "9.21" in (IMPLS["cudnn-graph"].unsupported(case) or "")
    monkeypatch.setattr(cudnn, "version_of", lambda _package: "9.21.0.1")
    assert IMPLS["cudnn-graph"].unsupported(case) is None
    assert "residual" in (IMPLS["cudnn"].unsupported(case) or "")  # so that `cudnn + torch` is measured beside it
    inputs = inputs_of(case)
    checks = precision.check(inputs, IMPLS["cudnn-graph"].prepare(inputs)())
    assert {each.error_class for each in checks.values()} == {"exact"}
    assert Graph.built == "eng0"
