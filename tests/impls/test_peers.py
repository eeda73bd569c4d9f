"""All adapters, and those of the GPU libraries against stand-ins for these."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from harness.cases import NormCase, UnsupportedError, make_inputs
from harness.cases.input_kinds import INPUT_KINDS
from harness.cases.variants import parse_variants, with_features
from harness.verify import precision
from harness.worker.configured import candidates
from harness.worker.discovery import discover
from harness.worker.libraries import versions_for
from impls.cuda_peers import apex_fast, apex_fused, cudnn
from impls.dsl_peers import helion, quack
from impls.libraries import cudnn_plans
from impls.libraries.recorded import recorded
from impls.triton_peers import transformer_engine_rocm
from tests.cases.test_unfused import COMBINED
from tests.impls.peer_cases import FAST, IMPLS, LAYER, RMS, check, inputs_of, module, on_cpu
from tests.impls.stand_ins import CONFIGS, LIGER_BACKENDS, cudnn_ops, modules

GPU_PEERS = ["liger", "liger-gemma", "liger-triton", "liger-cutedsl", "quack", "quack-compiled", "quack-tuned"]
GPU_PEERS += ["quack-per-head"]
GPU_PEERS += [
    "fast-llm",
    "fla",
    "flag-gems",
    "flash-attn-cuda",
    "flash-attn-triton",
    "transformer-engine",
    "transformer-engine-rocm",
    "mamba",
    "helion",
    "helion-tuned",
    "oink",
    "tilegym",
    "quack-fused-sum",
    "apex-fused",
    "apex-fused-mem",
    "apex-fast",
    "apex-fast-mem",
    "cudnn",
    "cudnn-tuned",
]


def test_the_public_names():
    compiled = {"torch-compiled", "torch-compiled-autotune", "torch-compiled-unmixed", "torch-compiled-nonstrict"}
    assert {"torch-eager", *compiled, *GPU_PEERS} <= set(IMPLS)


@pytest.mark.parametrize("name", sorted(IMPLS))
def test_every_adapter_has_a_one_line_summary(name):
    assert 15 < len(IMPLS[name].summary) <= 120


@pytest.fixture
def stand_ins(monkeypatch):
    """Every GPU library replaced in sys.modules; nothing is compiled, and the first plan of cuDNN is the slowest."""
    for name, made in modules().items():
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setattr(torch.ops, "cudnn", cudnn_ops(), raising=False)
    monkeypatch.setattr(quack, "compile_alone", lambda function: function)
    monkeypatch.setattr(cudnn_plans, "_current_stream", lambda: 0)
    monkeypatch.setattr(cudnn_plans, "_time_us", lambda plans, _operands: 9.0 - plans.graph.selected)
    operators = sys.modules["transformer_engine.pytorch.triton_kernels.norms_common"]
    monkeypatch.setattr(transformer_engine_rocm, "_operators", lambda: operators)
    for cache in (quack._compiled, quack._compiled_finish, cudnn._fastest, helion._kernel):
        getattr(cache, "cache_clear", getattr(cache, "clear", None))()


def variants_of(case: NormCase) -> list[NormCase]:
    """The case, and it with each thing changed that an adapter may have to treat differently."""
    changes = [{}, {"weight": False, "bias": False}, {"zero_centred": True}, {"dtype": "bf16"}]
    changes += [{"dtype": "bf16", "weight_dtype": "bf16"}] + ([{"bias": False}] if case.bias else [])
    return [dataclasses.replace(case, **change) for change in changes]


WIDE_RMS = dataclasses.replace(RMS, cols=64)  # the tuner's least
STAND_IN_CASES = [case for base in (LAYER, RMS, WIDE_RMS, FAST) for case in variants_of(base)]


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("case", STAND_IN_CASES, ids=lambda case: case.key)
@pytest.mark.parametrize("name", GPU_PEERS)
def test_a_library_is_called_as_it_is_declared(name, case):
    peer = IMPLS[name]
    if peer.unsupported(case) is not None:
        assert (name, case.key) not in {("liger", RMS.key), ("quack", LAYER.key), ("cudnn", LAYER.key)}
        return
    inputs = inputs_of(case)
    dy = inputs.dy.clone()
    backward = peer.prepare(inputs)
    for _ in range(2):
        inputs.dy.copy_(dy)  # what the harness does for an implementation that says in_place
        grads = backward()
        assert grads.dx.dtype == torch.float64 or grads.dx.dtype == inputs.x.dtype
        check(grads, dataclasses.replace(inputs, dy=dy))
    assert peer.in_place or torch.equal(inputs.dy, dy)
    assert all(isinstance(note, str) for note in peer.notes(case))


TAKE_ROWS = [name for name in GPU_PEERS if not name.startswith(("liger", "apex-fused"))]  # those are handed x as it is


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("kind", ["strided-x", "transposed-dy", "3-d"])
@pytest.mark.parametrize("base", [FAST, WIDE_RMS], ids=lambda case: case.key)
@pytest.mark.parametrize("name", TAKE_ROWS)
def test_a_library_of_rows_is_handed_rows(name, base, kind):
    case, peer = dataclasses.replace(base, inputs=kind), IMPLS[name]
    if peer.unsupported(case) is None:
        inputs = inputs_of(case)
        found = precision.check(inputs, peer.prepare(inputs)())
        assert {each.error_class for each in found.values()} == {"exact"}


HANDLED = {  # of the variants, what each has itself, by norm; dropout and parallel-tied are of a residual
    "flash-attn-cuda": ("residual dropout parallel parallel-tied",) * 2,
    "flash-attn-triton": ("residual parallel parallel-tied",) * 2,
    "fla": ("residual gated gated-norm-first",) * 2,
    "mamba": ("residual parallel parallel-tied gated gated-norm-first",) * 2,
    "quack": ("residual qk", ""),
    "quack-compiled": ("residual qk", ""),
    "quack-tuned": ("residual qk", ""),
    "quack-per-head": ("residual qk", ""),
    "liger": ("residual", ""),
    "liger-gemma": ("residual", ""),
    "liger-triton": ("residual", ""),
    "liger-cutedsl": ("residual", ""),
    "oink": ("residual", ""),
    "tilegym": ("residual", ""),
    "transformer-engine": ("residual", ""),
}
NOT_TOGETHER = defaultdict(  # what each has, and its library has no function for all of it at once
    tuple, {"fla": ("gated+residual",), "mamba": ("gated+residual", "gated-norm-first+residual")}
)
MANY_ROWS = {  # two tokens of 20 heads
    "rms": dataclasses.replace(WIDE_RMS, rows=40),
    "layer": dataclasses.replace(LAYER, rows=40, cols=64),
}


def test_the_variants_that_peers_have():
    found = {name: item.handles for name, item in IMPLS.items() if item.module.__name__.partition("_peers")[1]}
    assert {
        name: tuple(set(handled) for handled in handles.values())
        for name, handles in found.items()
        if any(handles.values())
    } == {name: tuple(set(texts.split()) for texts in handled) for name, handled in HANDLED.items()}


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("text", [*COMBINED, "qk+residual", "gated+residual", "gated-norm-first+residual"])
@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("name", HANDLED)
def test_a_variant_is_handed_to_the_library(name, norm, text):
    (features,) = parse_variants(text)
    peer = IMPLS[name]
    for change in ({}, {"weight": False, "bias": False}, {"zero_centred": True}):
        case = with_features(dataclasses.replace(MANY_ROWS[norm], **change), features)
        refused = peer.unsupported(case)
        has_all = set(features) <= set(HANDLED[name][norm == "layer"].split())
        assert has_all or "does not handle" in refused
        if refused is not None:
            of_another_row = name.startswith("quack") and ("qk" in features) != (name == "quack-per-head")
            assert change or not has_all or of_another_row or name == "liger-gemma" or text in NOT_TOGETHER[name]
            continue
        inputs = inputs_of(case)
        backward = peer.prepare(inputs)
        for _ in range(2):
            found = precision.check(inputs, backward())
            assert {each.error_class for each in found.values()} == {"exact"}, case.key


@pytest.mark.usefixtures("stand_ins")
def test_a_version_without_a_zero_centred_weight_says_so(monkeypatch):
    monkeypatch.setattr(sys.modules["flash_attn.ops.triton.layer_norm"], "layer_norm_fn", lambda x, weight, bias: x)
    with pytest.raises(UnsupportedError, match="this version of flash-attention has no zero-centred weight"):
        IMPLS["flash-attn-triton"].prepare(inputs_of(dataclasses.replace(RMS, zero_centred=True)))


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
@pytest.mark.parametrize("case", [LAYER, WIDE_RMS], ids=lambda case: case.key)
def test_what_is_tuned_says_what_was_chosen(case):
    inputs = inputs_of(dataclasses.replace(case, cols=64))
    assert IMPLS["quack-tuned"].prepare(inputs).what == f"config: {CONFIGS[-1]}"
    assert IMPLS["cudnn-tuned"].prepare(inputs).what == "eng2, plan 3 of 3"
    assert IMPLS["helion-tuned"].prepare(inputs).what == "Config(block_sizes=[32])"


@pytest.mark.usefixtures("stand_ins")
def test_what_tilegym_tuned_for_other_rows_is_forgotten():
    prepared = IMPLS["tilegym"].prepare(inputs_of(with_features(RMS, ["residual"])))
    assert prepared.what == "programs a multiprocessor: 4"


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("name", ["fla", "flash-attn-triton", "flag-gems"])
def test_what_triton_tuned_is_said_of_the_backward_alone(name):
    assert re.fullmatch(r"\w+(bwd|backward)_kernel: num_warps: 8", IMPLS[name].prepare(inputs_of(FAST)).what)


def test_a_forward_that_records_something_else_is_refused():
    with pytest.raises(TypeError, match="MulBackward0, which is no autograd function of Python's"):
        recorded(inputs_of(RMS), lambda x, weight, bias: x * weight)


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("flash-attn-triton", "flash_attn"),
        ("fast-llm", "fast_llm"),
        ("transformer-engine", "transformer_engine"),
        ("mamba", "mamba_ssm"),
        ("tilegym", "tilegym"),
    ],
)
def test_a_library_that_cannot_be_imported_is_missing_with_the_reason(name, library, tmp_path, monkeypatch):
    peer = IMPLS[name]
    assert f"not installed: {library}" in (peer.missing() or "")
    assert peer.module.install in (peer.missing() or "")
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, library, "raise RuntimeError('built for another torch')")
    importlib.invalidate_caches()
    assert "built for another torch" in (peer.missing() or "")


def test_a_transformer_engine_that_is_not_nvidias_is_recognised(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, "transformer_engine")
    package(tmp_path, "transformer_engine/pytorch")
    importlib.invalidate_caches()
    peer = IMPLS["transformer-engine"]
    told = peer.missing() or ""
    assert "lacks NVIDIA's part for PyTorch (transformer_engine.pytorch.constants)" in told
    assert peer.module.install in told
    for name in ("transformer_engine", "transformer_engine.pytorch"):
        del sys.modules[name]


EXTENSION = """
import transformer_engine
assert transformer_engine.loaded, "undefined symbol"

def rmsnorm_fwd(x, *rest):
    raise RuntimeError("the extension was imported")
"""


def test_the_extension_of_transformer_engine_finds_the_libraries_that_it_needs(tmp_path, monkeypatch):
    """A worker that takes the place of another has not imported the package."""
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, "transformer_engine", "loaded = False")
    package(tmp_path, "transformer_engine/pytorch", "import transformer_engine\ntransformer_engine.loaded = True")
    (tmp_path / "transformer_engine/pytorch/constants.py").write_text("import torch\nTE_DType = {torch.float32: 0}")
    (tmp_path / "transformer_engine_torch.py").write_text(EXTENSION)
    importlib.invalidate_caches()
    inputs = make_inputs(NormCase("rms", 2, 8, dtype="fp32", weight_dtype="fp32", device="cpu"), 0)
    with pytest.raises(RuntimeError, match="the extension was imported"):
        IMPLS["transformer-engine"].prepare(inputs)
    for name in [name for name in sys.modules if name.startswith("transformer_engine")]:
        del sys.modules[name]


COMPILATION = """
class CallingConvention:
    cutile_python_v1 = staticmethod(lambda: "convention")

def KernelSignature(parameters, calling_convention):
    return (parameters, calling_convention)

def export_kernel(kernel, signatures, output_file, *, gpu_code, output_format):
    assert (kernel(), signatures, output_format) == (None, [([], "convention")], "cubin")
    if gpu_code != "sm_90":
        raise RuntimeError(f"Return code 5\\nfailed for {gpu_code}")
    output_file.write(b"cubin")
"""


@pytest.mark.parametrize(
    ("capability", "why"), [((9, 0), None), ((7, 5), "RuntimeError: Return code 5 failed for sm_75")]
)
def test_a_cutile_that_cannot_compile_for_this_gpu_is_missing_with_the_reason(capability, why, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for folder in ("tilegym", "tilegym/ops", "tilegym/ops/cutile", "cuda", "cuda/tile"):
        package(tmp_path, folder, "def kernel(function): return function")
    (tmp_path / "tilegym/ops/cutile/rms_norm.py").write_text("")
    (tmp_path / "cuda/tile/compilation.py").write_text(COMPILATION)
    importlib.invalidate_caches()
    tilegym = IMPLS["tilegym"]
    assert tilegym.missing() is None  # without a GPU there is nothing to compile for
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    told = tilegym.missing()
    assert told is None if why is None else why in told and tilegym.module.install in told
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tilegym", "cuda")]:
        del sys.modules[name]


def test_helion_without_its_examples_says_where_they_are(tmp_path, monkeypatch):
    assert "not installed: helion" in (IMPLS["helion"].missing() or "")
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, "helion")
    importlib.invalidate_caches()
    assert "its norms are in examples/" in (IMPLS["helion"].missing() or "")


NORMS_COMMON = """
import transformer_engine_torch as tex
from transformer_engine.pytorch.tensor.float8_tensor import Float8Quantizer
from ..quantized_tensor import Quantizer
from .common import get_fp8_max
from .rmsnorm import kernel
from .utils import programs

def te_rmsnorm_bwd_triton(dz, otype: tex.DType = None):
    assert not isinstance(dz, Float8Quantizer)
    return kernel, programs()
"""


@pytest.mark.parametrize("where", ["", "TransformerEngine"], ids=["installed", "a clone beside NVIDIA's"])
def test_the_triton_norms_of_transformer_engine_need_nothing_that_is_built(where, tmp_path, monkeypatch):
    rocm = IMPLS["transformer-engine-rocm"]
    monkeypatch.syspath_prepend(tmp_path)
    assert "not installed: TransformerEngine; git clone" in (rocm.missing() or "")
    package(tmp_path, "transformer_engine", "raise OSError('libtransformer_engine.so')")
    importlib.invalidate_caches()
    assert "it is not AMD's" in (rocm.missing() or "")
    kernels = tmp_path / where / "transformer_engine" / "pytorch" / "triton_kernels"
    kernels.mkdir(parents=True)
    importlib.invalidate_caches()
    (kernels / "norms_common.py").write_text(NORMS_COMMON)
    (kernels / "rmsnorm.py").write_text("kernel = 'theirs'")
    (kernels / "utils.py").write_text(
        "from transformer_engine.pytorch.utils import get_sm_count\ndef programs(): return get_sm_count()"
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setitem(sys.modules, "transformer_engine_torch", built := ModuleType("transformer_engine_torch"))
    transformer_engine_rocm._operators.cache_clear()
    assert rocm.missing() is None
    assert transformer_engine_rocm._operators().te_rmsnorm_bwd_triton(None) == ("theirs", 132)
    assert [name for name in sys.modules if name.startswith("transformer_engine")] == ["transformer_engine_torch"]
    assert sys.modules["transformer_engine_torch"] is built
    assert bool(versions_for(rocm).get("TransformerEngine")) == bool(where), "a clone is told by its commit or hash"
    transformer_engine_rocm._operators.cache_clear()


@pytest.mark.parametrize(("module", "widest"), [("norms_common", 8192), ("norms", 32768)])
def test_the_triton_rms_norm_of_transformer_engine_says_where_it_keeps_every_row(module, widest, monkeypatch):
    monkeypatch.setattr(transformer_engine_rocm, "_operators", lambda: ModuleType(f"triton_kernels.{module}"))
    kept = "stores a partial gradient in fp32 of every row"
    found = [kept in transformer_engine_rocm.notes(NormCase("rms", 8, cols)) for cols in (widest, widest + 1)]
    assert found == [False, True]
    assert transformer_engine_rocm.notes(NormCase("layer", 8, widest + 1, bias=True)) == []


def test_a_torch_whose_quack_does_not_sum_by_itself_is_missing():
    assert "878c34fc" in (IMPLS["quack-fused-sum"].missing() or "")


def test_a_cute_dsl_without_a_compiler_for_this_cuda_is_missing_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for library in ("quack", "liger_kernel"):
        package(tmp_path, library)
    importlib.invalidate_caches()
    for name in ("quack", "quack-tuned", "liger-cutedsl"):
        assert "not installed: cutlass; pip install" in (IMPLS[name].missing() or "")
    assert IMPLS["liger-triton"].missing() is None
    package(tmp_path, "cutlass", "raise RuntimeError('No CTK flavor installed')")
    importlib.invalidate_caches()
    for name in ("quack", "quack-compiled", "liger-cutedsl"):
        assert "RuntimeError: No CTK flavor installed" in (IMPLS[name].missing() or "")


NEAR = ["default", "num_threads=256, threads_per_row=16", "cluster_n=2, reload_x=smem", "smem_stages=3"]


@pytest.mark.usefixtures("stand_ins")
def test_quack_offers_its_tuners_launches_near_its_own():
    offered = IMPLS["quack"].configs
    case = dataclasses.replace(RMS, cols=32)
    assert list(offered(case)) == NEAR
    assert offered(case)["smem_stages=3"] == dataclasses.asdict(CONFIGS[-1])
    assert list(offered(dataclasses.replace(LAYER, cols=32))) == NEAR
    assert IMPLS["quack-tuned"].configs(case) == {}


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("case", variants_of(RMS)[:5:2], ids=lambda case: case.key)
def test_quack_runs_with_a_configuration_past_its_tuner(case, number, monkeypatch):
    launched = []
    ops = sys.modules["quack.rmsnorm"]
    fill = ops.rmsnorm_bwd_tuned.fn
    monkeypatch.setattr(ops.rmsnorm_bwd_tuned, "fn", lambda *a, **o: (launched.append(o["config"]), fill(*a, **o)))
    case = dataclasses.replace(case, cols=32)
    candidate = candidates(IMPLS["quack"], 3)[number - 1]
    inputs = inputs_of(case)
    check(candidate.prepare(inputs)(), inputs)
    assert [dataclasses.asdict(config) for config in launched] == [IMPLS["quack"].configs(case)[NEAR[number]]] * 2


SUPPORTED = {  # what of the cases each takes, of: plain, no weight, zero-centred, bf16 x, all bf16, and no bias
    "torch-eager": ("++--++", "++--+-"),
    "liger": ("+--+++", "+++++-"),
    "liger-gemma": ("------", "+++++-"),
    "quack": ("+--+++", "+++++-"),
    "quack-compiled": ("+--+++", "+++++-"),
    "quack-tuned": ("+--+++", "+++++-"),
    "liger-triton": ("+--+++", "+++++-"),
    "liger-cutedsl": ("+--+++", "+++++-"),
    "apex-fused": ("++--+-", "++--+-"),
    "apex-fused-mem": ("++--+-", "++--+-"),
    "apex-fast": ("+---+-", "------"),
    "apex-fast-mem": ("+---+-", "------"),
    "flash-attn-triton": ("+-++++", "+-+++-"),
    "transformer-engine-rocm": ("+-+-+-", "+-+-+-"),
    "mamba": ("+--+++", "+--++-"),
    "helion": ("+--+++", "+--++-"),
    "helion-tuned": ("+--+++", "+--++-"),
    "oink": ("+--+++", "++-++-"),
    "tilegym": ("+--+++", "+++++-"),
    "quack-fused-sum": ("------", "+--++-"),
    "flash-attn-cuda": ("+--+++", "+--++-"),
    "fla": ("++-+++", "++-++-"),
    "flag-gems": ("++-+++", "+---+-"),
    "fast-llm": ("+-+++-", "+++++-"),
    "transformer-engine": ("+-+-+-", "+-+-+-"),
    "cudnn": ("++-+++", "+---+-"),
    "cudnn-tuned": ("++-+++", "+---+-"),
}


@pytest.mark.parametrize("name", SUPPORTED)
def test_what_is_supported(name):
    for base, expected in zip((FAST, WIDE_RMS), SUPPORTED[name], strict=True):
        answers = [IMPLS[name].unsupported(case) for case in variants_of(base)]
        got = "".join("-" if answer else "+" for answer in answers)
        assert got.ljust(6, "-") == expected


@pytest.mark.parametrize(
    ("name", "case", "reason"),
    [
        *[(name, on_cpu(FAST), "GPU") for name in GPU_PEERS],
        ("liger", dataclasses.replace(RMS, cols=65537), "65536"),
        ("quack", dataclasses.replace(RMS, dtype="bf16", cols=15), "even"),
        ("quack", dataclasses.replace(RMS, cols=131073), "131072"),
        ("quack-tuned", RMS, "64 columns"),
        ("quack-tuned", dataclasses.replace(WIDE_RMS, rows=0), "zero rows"),
        ("apex-fused", dataclasses.replace(LAYER, rows=0), "one block a row"),
        ("apex-fast", LAYER, "hidden sizes"),
        ("cudnn", dataclasses.replace(LAYER, rows=0), "at least one row"),
        ("cudnn", dataclasses.replace(LAYER, rows=65537, cols=32768), "no engine for more than 2147483647 elements"),
        ("mamba", dataclasses.replace(RMS, cols=16385), "65536 bytes"),
        ("oink", dataclasses.replace(RMS, cols=20), "multiples of 8"),
        ("tilegym", dataclasses.replace(RMS, cols=65537), "65536"),
        ("quack-fused-sum", dataclasses.replace(RMS, cols=8193), "8192"),
        ("liger", with_features(dataclasses.replace(RMS, weight=False), ["residual"]), "always has a weight"),
        ("fla", with_features(dataclasses.replace(RMS, weight=False), ["gated"]), "always has a weight"),
        *[(name, dataclasses.replace(FAST, rows=0), "row") for name in ("mamba", "helion", "oink", "tilegym")],
        ("torch-eager", dataclasses.replace(on_cpu(LAYER), weight_dtype="bf16"), "x's dtype"),
    ],
)
def test_why_a_case_is_not_supported(name, case, reason):
    assert reason in (IMPLS[name].unsupported(case) or "")


@pytest.mark.parametrize(("capability", "compiles"), [((9, 0), False), ((10, 0), True), ((12, 0), True)])
def test_oinks_residual_is_refused_before_blackwell(capability, compiles, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    for base in (RMS, with_features(RMS, ["residual"])):
        why = IMPLS["oink"].unsupported(base)
        assert (why is None) == (compiles or not base.features)
        assert why is None or "compute capability 10.0" in why


def test_apex_fast_knows_its_hidden_sizes():
    assert len(apex_fast.HIDDEN_SIZES) == 26
    assert (min(apex_fast.HIDDEN_SIZES), max(apex_fast.HIDDEN_SIZES)) == (768, 65536)


# Libraries that are absent, or other than they seem


def package(folder: Path, name: str, text: str = "") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)


@pytest.mark.parametrize(
    ("adapter", "extension"), [(apex_fused, "fused_layer_norm_cuda"), (apex_fast, "fast_layer_norm")]
)
def test_an_apex_that_is_another_project_is_recognised(adapter, extension, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert adapter.missing() is None
    assert extension in (IMPLS[adapter.name].missing() or "")
    package(tmp_path, "apex")
    importlib.invalidate_caches()
    assert "not NVIDIA's" in (IMPLS[adapter.name].missing() or "")
    package(tmp_path / "apex", "normalization")
    assert "built without" in (IMPLS[adapter.name].missing() or "")
    (tmp_path / f"{extension}.py").write_text("")
    importlib.invalidate_caches()
    assert IMPLS[adapter.name].missing() is None
    sys.modules.pop(extension)  # it was imported


@pytest.mark.parametrize(
    ("name", "extension"),
    [
        ("apex-fast", "fast_layer_norm"),
        ("apex-fused", "fused_layer_norm_cuda"),
        ("flash-attn-cuda", "dropout_layer_norm"),
    ],
)
def test_an_extension_that_cannot_be_loaded_is_missing(name, extension, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{extension}.py").write_text("raise ImportError('undefined symbol: of another torch')")
    importlib.invalidate_caches()
    told = IMPLS[name].missing() or ""
    assert f"{extension} cannot be imported: ImportError: undefined symbol: of another torch; build it again" in told


def test_a_cudnn_that_cannot_be_used_says_so(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert "not installed: cudnn" in (IMPLS["cudnn"].missing() or "")
    fails = "def backend_version(): raise RuntimeError('no libcudnn')"
    package(tmp_path, "cudnn", fails)
    importlib.invalidate_caches()
    assert "cannot load cuDNN: no libcudnn" in (IMPLS["cudnn"].missing() or "")
    monkeypatch.delitem(sys.modules, "cudnn")
    monkeypatch.setitem(sys.modules, "cudnn", module("cudnn", backend_version=lambda: 91000, __path__=[]))
    assert ">= 1.32" in (IMPLS["cudnn"].missing() or "")


def test_libcudnn_is_loaded_from_torchs_package(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcudnn.so.9").write_text("not a library")
    monkeypatch.setattr(cudnn, "_cudnn_folders", lambda: [str(tmp_path)])
    assert "libcudnn.so.9" in (cudnn.missing() or "")  # ctypes was given its full path, and said so


# What `list impls` says of each


def test_no_two_are_told_alike():
    told = {name: item.summary for name, item in IMPLS.items()}
    assert len(set(told.values())) == len(told)
    assert told["liger-cutedsl"] == "as liger, but implementation nvidia-cutedsl, module cutedsl"
    assert told["torch-compiled-unmixed"] == "as torch-compiled, but triton.mix_order_reduction=False"


# The worked example of docs/add-an-implementation.md

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_norm.py"


def test_the_example_is_a_whole_adapter():
    mine = {implementation.name: implementation for implementation in discover([EXAMPLE])}["my-norm"]
    assert mine.missing() is None
    assert mine.unsupported(on_cpu(LAYER))
    for case in (RMS, dataclasses.replace(RMS, zero_centred=True), dataclasses.replace(RMS, dtype="bf16")):
        inputs = make_inputs(on_cpu(case), seed=2)
        assert mine.unsupported(inputs.case) is None
        check(mine.prepare(inputs)(), inputs)


@pytest.mark.parametrize("kind", [kind.name for kind in INPUT_KINDS.values() if kind.only in ("any", "weight")])
def test_the_example_is_right_on_inputs_of_every_kind(kind):
    mine = {item.name: item for item in discover([EXAMPLE])}["my-norm"]
    inputs = make_inputs(dataclasses.replace(on_cpu(RMS), inputs=kind), seed=2)
    grads = mine.prepare(inputs)()
    assert precision.malformed(inputs, grads) is None
    assert precision.fault(precision.check(inputs, grads)) is None
