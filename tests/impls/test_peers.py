"""The adapters: torch's really run on a CPU, the GPU libraries' against stand-ins that do the maths of their arguments.

A stand-in has the library's signature and computes exact gradients from what it is handed, so an argument in the wrong
place gives wrong gradients; it refuses the dtypes and shapes that the library refuses.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config

from harness.cases import Grads, Inputs, NormCase, make_inputs, statistics
from impls import Implementation, apex_fast, apex_fused, discover, torch_compiled, torch_eager

IMPLS: dict[str, Implementation] = {implementation.name: implementation for implementation in discover()}
LAYER = NormCase("layer", 12, 16, "fp32", "fp32", bias=True)
RMS = NormCase("rms", 12, 16, "fp32", "fp32")
FAST = dataclasses.replace(LAYER, cols=768)
EPS = 1e-5

GPU_PEERS = ["liger", "liger-gemma", "quack", "quack-tuned", "apex-fused", "apex-fused-mem", "apex-fast"]
GPU_PEERS += ["apex-fast-mem", "cudnn"]


def on_cpu(case: NormCase) -> NormCase:
    return dataclasses.replace(case, device="cpu")


def inputs_of(case: NormCase) -> Inputs:
    """Inputs of a GPU case whose tensors lie on the CPU."""
    return dataclasses.replace(make_inputs(on_cpu(case), seed=0), case=case)


def exact(norm, dy, x, mean, rstd, weight=None, offset=0.0):
    """Fp64 dx, dweight, dbias from the arguments alone."""
    rstd = rstd.reshape(-1, 1).double()
    xhat = (x.double() - (mean.reshape(-1, 1).double() if norm == "layer" else 0)) * rstd
    wdy = dy.double() * (1 if weight is None else weight.double() + offset)
    dx = wdy - xhat * (wdy * xhat).mean(1, keepdim=True)
    if norm == "layer":
        dx = dx - wdy.mean(1, keepdim=True)
    return dx * rstd, (dy.double() * xhat).sum(0), dy.double().sum(0)


def check(grads: Grads, inputs: Inputs) -> None:
    case = inputs.case
    mean, rstd = statistics(inputs.x, case)
    dx, dweight, dbias = exact(case.norm, inputs.dy, inputs.x, mean, rstd, inputs.weight, float(case.zero_centred))
    tolerance = {"atol": 1e-4, "rtol": 1e-4} if case.dtype == "fp32" else {"atol": 0.05, "rtol": 0.02}
    for got, want, has in (
        (grads.dx, dx, True),
        (grads.dweight, dweight, case.weight),
        (grads.dbias, dbias, case.bias),
    ):
        assert (got is not None) == has
        if got is not None:
            torch.testing.assert_close(got.double(), want, **tolerance)


def test_the_public_names():
    compiled = {"torch-compiled", "torch-compiled-autotune", "torch-compiled-unmixed", "torch-compiled-nonstrict"}
    assert {"torch-eager", *compiled, *GPU_PEERS} <= set(IMPLS)


@pytest.mark.parametrize("name", sorted(IMPLS))
def test_every_adapter_has_a_one_line_summary(name):
    assert 20 < len(IMPLS[name].summary) <= 120


# torch, which runs here


EAGER = [
    LAYER,
    RMS,
    dataclasses.replace(LAYER, bias=False),
    dataclasses.replace(LAYER, weight=False, bias=False),
    dataclasses.replace(RMS, weight=False),
    dataclasses.replace(LAYER, dtype="bf16"),
    dataclasses.replace(RMS, dtype="bf16", weight_dtype="bf16"),
    dataclasses.replace(LAYER, rows=0),
    dataclasses.replace(LAYER, eps=0.5),
]


@pytest.mark.parametrize("case", EAGER, ids=lambda case: case.key)
def test_torch_eager_on_a_cpu(case):
    inputs = make_inputs(on_cpu(case), seed=1)
    eager = IMPLS["torch-eager"]
    assert eager.unsupported(inputs.case) is None
    backward = eager.prepare(inputs)
    if case.dtype == "bf16" and case.norm == "layer":  # torch's low precision, of which notes() warns
        assert eager.notes(inputs.case)
        torch.testing.assert_close(backward().dx.double(), exact_dx(inputs), atol=0.1, rtol=0.05)
        return
    check(backward(), inputs)
    check(backward(), inputs)


def exact_dx(inputs: Inputs) -> torch.Tensor:
    return exact(inputs.case.norm, inputs.dy, inputs.x, *statistics(inputs.x, inputs.case), inputs.weight)[0]


# torch.utils.mkldnn, which Inductor imports, uses a part of torch.jit that torch itself has deprecated.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_torch_compiled_on_a_cpu_keeps_earlier_backwards_alive():
    layer, rms = make_inputs(on_cpu(LAYER), 0), make_inputs(on_cpu(dataclasses.replace(RMS, zero_centred=True)), 0)
    compiled = IMPLS["torch-compiled"]
    first, second = compiled.prepare(layer), compiled.prepare(rms)  # the second resets the compiler
    for _ in range(2):  # a backward that accumulated, or freed what it saved, fails the second time
        check(first(), layer)
        check(second(), rms)
    assert first().dx.data_ptr() != layer.dy.data_ptr()
    assert layer.x.grad is None
    assert not layer.x.requires_grad
    assert compiled.via == "autograd"


class Spy(torch.autograd.Function):
    """Stands in for what torch.compile returns: notes the settings in force when either half would be compiled."""

    seen: ClassVar[list[tuple[bool, bool, bool]]] = []

    @staticmethod
    def forward(ctx, x, weight, bias):
        Spy.note()
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        Spy.note()
        return dy, torch.zeros(16), torch.zeros(16)

    @staticmethod
    def note():
        triton = inductor_config.triton
        mixing = (triton.mix_order_reduction, triton.mix_order_reduction_non_strict_mode)
        Spy.seen.append((functorch_config.donated_buffer, *mixing))


@pytest.mark.parametrize(
    ("name", "mode", "mixing"),
    [
        ("torch-compiled", None, (True, False)),
        ("torch-compiled-autotune", "max-autotune-no-cudagraphs", (True, False)),
        ("torch-compiled-unmixed", None, (False, False)),
        ("torch-compiled-nonstrict", None, (True, True)),
    ],
)
def test_torch_compiled_compiles_both_halves_under_its_settings(name, mode, mixing, monkeypatch):
    asked = {}
    monkeypatch.setattr(Spy, "seen", [])
    monkeypatch.setattr(torch, "compile", lambda function, **options: asked.update(options) or Spy.apply)
    IMPLS[name].prepare(inputs_of(LAYER))
    assert asked == {"mode": mode, "dynamic": False, "fullgraph": True}
    assert Spy.seen == [(False, *mixing)] * 2
    assert functorch_config.donated_buffer  # and put back


def test_torch_compiled_variants_need_triton_and_their_setting(monkeypatch):
    for name in ("torch-compiled-autotune", "torch-compiled-unmixed", "torch-compiled-nonstrict"):
        assert "Triton" in (IMPLS[name].unsupported(on_cpu(LAYER)) or "")
        assert IMPLS[name].unsupported(LAYER) is None
    monkeypatch.setitem(torch_compiled.variants["torch-compiled-unmixed"].settings, "triton.no_such_setting", False)
    assert "triton.no_such_setting" in (IMPLS["torch-compiled-unmixed"].unsupported(LAYER) or "")


def test_torch_eager_switches_a_vendored_quack_off(monkeypatch):
    disabled = []
    native = SimpleNamespace(
        get_dsl_operations=lambda dsl: list(torch_eager.RMS_OPS) if dsl == "cutedsl" else [],
        disable_operations=lambda *operations: disabled.extend(operations),
    )
    monkeypatch.setattr(torch_eager, "_python_native", lambda: native)
    inputs = inputs_of(RMS)
    monkeypatch.setattr(torch.ops, "aten", fused_rms_ops())
    assert "vendored quack" in IMPLS["torch-eager"].notes(RMS)[0]
    check(IMPLS["torch-eager"].prepare(inputs)(), inputs)
    assert disabled == ["_fused_rms_norm", "_fused_rms_norm_backward"]


def fused_rms_ops() -> SimpleNamespace:
    def forward(x, shape, weight, eps):
        return x, (x.double().square().mean(1, keepdim=True) + eps).rsqrt().float()

    def backward(dy, x, shape, rstd, weight, mask):
        assert shape == [x.shape[1]]
        assert mask == [True, weight is not None]
        dx, dweight, _ = exact("rms", dy, x, None, rstd, weight)
        return dx, dweight if mask[1] else None

    return SimpleNamespace(
        _fused_rms_norm=SimpleNamespace(default=forward), _fused_rms_norm_backward=SimpleNamespace(default=backward)
    )


def test_torch_eager_rms_needs_torch_2_9(monkeypatch):
    monkeypatch.setattr(torch_eager, "version", lambda package: "2.8.1+cu128")
    assert "2.9" in (IMPLS["torch-eager"].unsupported(RMS) or "")
    assert IMPLS["torch-eager"].unsupported(on_cpu(RMS)) is None
    monkeypatch.setattr(torch_eager, "version", lambda package: "2.11.0a0+git1234")
    assert IMPLS["torch-eager"].unsupported(RMS) is None


# The GPU libraries, by stand-ins


def module(name: str, **contents: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(contents)
    return made


@pytest.fixture
def stand_ins(monkeypatch):
    """Every GPU library replaced in sys.modules."""
    for stand_in in (liger_rms(), liger_layer(), quack(), apex_fused_extension(), apex_fast_extension()):
        for depth in range(stand_in.__name__.count(".")):
            parent = ".".join(stand_in.__name__.split(".")[: depth + 1])
            monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    for name in ("cudnn", "cudnn.ops", "cudnn.ops.norm", "cudnn.ops.norm.rmsnorm", "cudnn.ops.norm.layernorm"):
        monkeypatch.setitem(sys.modules, name, module(name, backend_version=lambda: 91000))
    monkeypatch.setattr(torch.ops, "cudnn", cudnn_ops(), raising=False)


def forward_of(norm, x, eps):
    mean = x.double().mean(1) if norm == "layer" else torch.zeros(len(x), dtype=torch.float64)
    rstd = ((x.double() - mean[:, None]).square().mean(1) + eps).rsqrt()
    return ((x.double() - mean[:, None]) * rstd[:, None]), mean.float(), rstd.float()


def liger_rms() -> ModuleType:
    def rms_norm_forward(X, W, eps, offset, casting_mode, row_mode):
        assert row_mode is None
        _, _, rstd = forward_of("rms", X, eps)
        return X, X, rstd, 32, 4, {"llama": 0, "gemma": 1}[casting_mode]

    def rms_norm_backward(
        dY, X, W, RSTD, offset, casting_mode, BLOCK_SIZE, num_warps, in_place, row_mode, needs_dw=None
    ):
        assert (casting_mode in (0, 1), BLOCK_SIZE, num_warps, in_place, row_mode) == (True, 32, 4, True, None)
        dx, dweight, _ = exact("rms", dY, X, None, RSTD, W, offset)
        return dY.copy_(dx), None if W is None else dweight.to(W.dtype)

    return module("liger_kernel.ops.rms_norm", rms_norm_forward=rms_norm_forward, rms_norm_backward=rms_norm_backward)


def liger_layer() -> ModuleType:
    def layer_norm_forward(X, W, B, eps):
        assert W.shape == B.shape
        _, mean, rstd = forward_of("layer", X, eps)
        return X, X, mean, rstd, 32, 4

    def layer_norm_backward(dY, X, W, B, Mean, RSTD, needs_dw=None, needs_db=None):
        dx, dweight, dbias = exact("layer", dY, X, Mean, RSTD, W)
        return dx.to(X.dtype), dweight.to(W.dtype), dbias.to(B.dtype) if needs_db else None

    name = "liger_kernel.ops.layer_norm"
    return module(name, layer_norm_forward=layer_norm_forward, layer_norm_backward=layer_norm_backward)


def quack() -> ModuleType:
    def rmsnorm_fwd(x, weight=None, *, eps=1e-6, store_rstd=False, weight_offset=0.0):
        assert store_rstd
        return x, x, forward_of("rms", x, eps)[2]

    def rmsnorm_bwd(x, weight, dout, rstd, dresidual_out=None, has_bias=False, has_residual=False, weight_offset=0.0):
        dx, dweight, _ = exact("rms", dout, x, None, rstd, weight, weight_offset)
        return dx.to(x.dtype), None if weight is None else dweight.to(weight.dtype), None, None

    def rmsnorm_bwd_tuned(
        x, weight, dout, rstd, dx, dw_partial=None, *, sm_count=None, has_dw_partial=False, weight_offset=0.0
    ):
        assert has_dw_partial == (dw_partial is not None)
        gradients = exact("rms", dout, x, None, rstd, weight, weight_offset)
        dx.copy_(gradients[0])
        if dw_partial is not None:
            assert dw_partial.shape[0] == sm_count == 3
            dw_partial.zero_()[1] = gradients[1]

    def layernorm_fwd(x, weight, bias=None, eps=1e-6, return_rstd=False, return_mean=False):
        assert weight.dtype == torch.float32
        assert return_rstd
        assert return_mean
        _, mean, rstd = forward_of("layer", x, eps)
        return x, rstd, mean

    def layernorm_bwd(x, weight, dout, rstd, mean, has_bias=True):
        dx, dweight, dbias = exact("layer", dout, x, mean, rstd, weight)
        return dx.to(x.dtype), dweight.to(weight.dtype), dbias.to(weight.dtype) if has_bias else None

    return module(
        "quack.rmsnorm", rmsnorm_fwd=rmsnorm_fwd, rmsnorm_bwd=rmsnorm_bwd, rmsnorm_bwd_tuned=rmsnorm_bwd_tuned,
        layernorm_fwd=layernorm_fwd, layernorm_bwd=layernorm_bwd, get_sm_count=lambda cols, device: 3,
    )  # fmt: skip


def from_saved(norm, dy, mean, rstd, kept, weight, bias, keeps_y):
    """Apex's backward: of x and its statistics, or of y, from which xhat is recovered."""
    if not keeps_y:
        return exact(norm, dy, kept, mean, rstd, weight)
    assert mean is None
    xhat = kept.double() if weight is None else (kept.double() - (0 if bias is None else bias)) / weight
    return exact(norm, dy, xhat / rstd[:, None], torch.zeros_like(rstd), rstd, weight)


def apex_fused_extension() -> ModuleType:
    def forward(x, shape, eps):
        return forward_of("layer", x, eps)

    def forward_affine(x, shape, weight, bias, eps):
        xhat, mean, rstd = forward_of("layer", x, eps)
        return xhat * weight + bias, mean, rstd

    def rms_forward(x, shape, eps):
        xhat, _, rstd = forward_of("rms", x, eps)
        return xhat, rstd

    def rms_forward_affine(x, shape, weight, eps):
        xhat, _, rstd = forward_of("rms", x, eps)
        return xhat * weight, rstd

    def backward(dy, mean, rstd, kept, shape, eps, memory_efficient):
        assert (shape, eps) == ((kept.shape[1],), EPS)
        return from_saved("layer", dy, mean, rstd, kept, None, None, memory_efficient)[0]

    def backward_affine(dy, mean, rstd, kept, shape, weight, bias, eps, memory_efficient):
        assert (shape, eps) == ((kept.shape[1],), EPS)
        return from_saved("layer", dy, mean, rstd, kept, weight, bias, memory_efficient)

    def rms_backward(dy, rstd, kept, shape, eps, memory_efficient):
        return rms_backward_affine(dy, rstd, kept, shape, None, eps, memory_efficient)[0]

    def rms_backward_affine(dy, rstd, kept, shape, weight, eps, memory_efficient):
        assert (shape, eps) == ((kept.shape[1],), EPS)
        return from_saved("rms", dy, None, rstd, kept, weight, None, memory_efficient)[:2]

    return module(
        "fused_layer_norm_cuda", forward=forward, forward_affine=forward_affine, backward=backward,
        backward_affine=backward_affine, rms_forward=rms_forward, rms_forward_affine=rms_forward_affine,
        rms_backward=rms_backward, rms_backward_affine=rms_backward_affine,
    )  # fmt: skip


def apex_fast_extension() -> ModuleType:
    def ln_fwd(x, gamma, beta, epsilon):
        xhat, mean, rstd = forward_of("layer", x, epsilon)
        return xhat * gamma + beta, mean, rstd

    def ln_bwd(dz, x_or_z, mu, rsigma, gamma, beta, memory_efficient):
        assert memory_efficient == (mu is None) == (beta is not None)
        gradients = from_saved("layer", dz, mu, rsigma, x_or_z, gamma, beta, memory_efficient)
        return [*gradients, "dgamma partials", "dbeta partials"]

    return module("fast_layer_norm", ln_fwd=ln_fwd, ln_bwd=ln_bwd)


def cudnn_ops() -> SimpleNamespace:
    def canonical(rows, cols, x, scale, scale_dtype):
        assert x.shape == (rows, cols, 1, 1)
        assert scale.shape == (1, cols, 1, 1)
        assert scale.dtype == scale_dtype
        return x.reshape(rows, cols), scale.reshape(cols)

    def rmsnorm(x, scale, eps, bias=None):
        matrix, _ = canonical(*x.shape[:2], x, scale, x.dtype)
        return x, forward_of("rms", matrix, eps)[2].reshape(-1, 1, 1, 1)

    def rmsnorm_bwd(dy, x, scale, inv_var, has_dbias=False):
        assert inv_var.shape == (len(x), 1, 1, 1)
        matrix, weight = canonical(*dy.shape[:2], x, scale, x.dtype)
        dx, dweight, _ = exact("rms", dy.reshape_as(matrix), matrix, None, inv_var, weight)
        return dx.to(x.dtype).reshape_as(x), dweight.to(scale.dtype).reshape_as(scale), torch.empty(0)

    def layernorm(x, scale, bias, eps):
        matrix, _ = canonical(*x.shape[:2], x, scale, torch.float32)
        assert (bias.shape, bias.dtype) == (scale.shape, torch.float32)
        _, mean, rstd = forward_of("layer", matrix, eps)
        return x, mean.reshape(-1, 1, 1, 1), rstd.reshape(-1, 1, 1, 1)

    def layernorm_bwd(dy, x, scale, mean, inv_var):
        matrix, weight = canonical(*dy.shape[:2], x, scale, torch.float32)
        dx, dweight, dbias = exact("layer", dy.reshape_as(matrix), matrix, mean, inv_var, weight)
        return dx.to(x.dtype).reshape_as(x), dweight.float().reshape_as(scale), dbias.float().reshape_as(scale)

    return SimpleNamespace(rmsnorm=rmsnorm, rmsnorm_bwd=rmsnorm_bwd, layernorm=layernorm, layernorm_bwd=layernorm_bwd)


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


SUPPORTED = {  # what of the cases each takes, of: plain, no weight, zero-centred, bf16 x, all bf16, and no bias
    "torch-eager": ("++--++", "++--+-"),
    "liger": ("+--+++", "+++++-"),
    "liger-gemma": ("------", "+++++-"),
    "quack": ("+--+++", "+++++-"),
    "quack-tuned": ("------", "+++++-"),
    "apex-fused": ("++--+-", "++--+-"),
    "apex-fused-mem": ("++--+-", "++--+-"),
    "apex-fast": ("+---+-", "------"),
    "apex-fast-mem": ("+---+-", "------"),
    "cudnn": ("++-+++", "+---+-"),
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
        ("torch-eager", dataclasses.replace(on_cpu(LAYER), weight_dtype="bf16"), "x's dtype"),
    ],
)
def test_why_a_case_is_not_supported(name, case, reason):
    assert reason in (IMPLS[name].unsupported(case) or "")


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
    from impls import cudnn

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcudnn.so.9").write_text("not a library")
    monkeypatch.setattr(cudnn, "_cudnn_folders", lambda: [str(tmp_path)])
    assert "libcudnn.so.9" in (cudnn.missing() or "")  # ctypes was given its full path, and said so


# The worked example of docs/add-an-implementation.md


def test_the_example_is_a_whole_adapter():
    path = Path(__file__).parents[2] / "examples" / "my_norm.py"
    mine = {implementation.name: implementation for implementation in discover([path])}["my-norm"]
    assert mine.missing() is None
    assert mine.unsupported(on_cpu(LAYER))
    for case in (RMS, dataclasses.replace(RMS, zero_centred=True), dataclasses.replace(RMS, dtype="bf16")):
        inputs = make_inputs(on_cpu(case), seed=2)
        assert mine.unsupported(inputs.case) is None
        check(mine.prepare(inputs)(), inputs)
