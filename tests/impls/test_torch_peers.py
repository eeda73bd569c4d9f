"""torch's own adapters, which run on a CPU."""

from __future__ import annotations

import dataclasses
import weakref
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

from harness.cases import Inputs, make_inputs, statistics
from harness.cases.variants import parse_variants, with_features
from harness.verify import precision
from impls import torch_compiled, torch_eager
from impls.libraries.inductor import tuned_kernels
from impls.libraries.recorded import recorded
from tests.cases.test_unfused import COMBINED
from tests.impls.peer_cases import IMPLS, LAYER, RMS, check, exact, inputs_of, on_cpu

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


@pytest.mark.parametrize("name", ["torch-eager", "torch-compiled"])
@pytest.mark.parametrize("text", COMBINED)
def test_every_variant_is_written_plainly(text, name, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    torch_compiled._compiled.cache_clear()
    (features,) = parse_variants(text)
    for plain in (LAYER, dataclasses.replace(RMS, weight=False)):
        inputs = make_inputs(with_features(on_cpu(plain), features), 2)
        assert IMPLS[name].unsupported(inputs.case) is None
        checks = precision.check(inputs, IMPLS[name].prepare(inputs)())
        assert {each.error_class for each in checks.values()} == {"exact"}
    torch_compiled._compiled.cache_clear()


def spied(x, weight, bias, **others):
    return [Spy.apply(x, weight, bias)]


def test_y_is_not_kept(monkeypatch):
    made = []

    def norm(**leaves):
        y = spied(**leaves)
        made.append(weakref.ref(y[0]))
        return y

    monkeypatch.setattr(torch, "compile", lambda function, **options: norm)
    torch_compiled._compiled.cache_clear()
    inputs = make_inputs(on_cpu(LAYER), 0)
    kept = recorded(inputs, lambda **leaves: norm(**leaves)[0]), IMPLS["torch-compiled"].prepare(inputs)
    torch_compiled._compiled.cache_clear()
    assert [y() for y in made] == [None] * len(kept)


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
    monkeypatch.setattr(torch, "compile", lambda function, **options: asked.update(options) or spied)
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
    monkeypatch.setattr(torch_eager, "installed_version", lambda package: "2.8.1+cu128")
    assert "2.9" in (IMPLS["torch-eager"].unsupported(RMS) or "")
    assert IMPLS["torch-eager"].unsupported(on_cpu(RMS)) is None
    monkeypatch.setattr(torch_eager, "installed_version", lambda package: "2.11.0a0+git1234")
    assert IMPLS["torch-eager"].unsupported(RMS) is None


def test_what_inductor_tuned_is_said_of_the_kernels_that_run(monkeypatch):
    def kernel(*configs):
        made = object.__new__(CachingAutotuner)
        made.launchers = [SimpleNamespace(config=config) for config in configs]
        return made

    def compiled(**kernels):
        return SimpleNamespace(__name__="generated", **kernels)

    warps = "XBLOCK: 4, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None"
    modules = [compiled(triton_=kernel("XBLOCK: 1")), compiled(triton_red_0=kernel(warps), other="no kernel")]
    monkeypatch.setattr(PyCodeCache, "modules", [*modules, compiled(triton_poi_1=kernel("a", "b"))])
    assert tuned_kernels() == {"generated.triton_red_0": "XBLOCK: 4, num_warps: 8, num_stages: 3"}
