"""PyTorch's own kernels: the aten calls that eager LayerNorm and RMSNorm make, and elementwise ones around them."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Any

from harness.cases import Grads, Inputs, NormCase
from harness.cases.unfused import prepare as with_operators
from harness.cases.variants import FEATURES

from .libraries.recorded import forward_and_backward

if TYPE_CHECKING:
    import torch

name = "torch-eager"
version = 0
requires = ("torch",)
handles = frozenset(FEATURES)

RMS_OPS = ("_fused_rms_norm", "_fused_rms_norm_backward")


def unsupported(case: NormCase) -> str | None:
    on_cpu = case.device == "cpu"
    mixed = case.weight and case.weight_dtype != case.dtype
    if case.zero_centred:
        return "torch has no zero-centred weight, and adding 1 beforehand would round it"
    if case.norm == "rms" and not on_cpu and _torch_release() < (2, 9):
        return "torch has had an RMSNorm kernel of its own only since 2.9"
    if mixed and not (on_cpu and case.norm == "layer" and case.weight_dtype == "fp32"):
        return "torch's kernel takes the weight in x's dtype only"
    return None


def saves(case: NormCase) -> str | None:
    return "x * rstd, as autograd does" if case.device == "cpu" and case.norm == "rms" else None


def notes(case: NormCase) -> list[str]:
    if case.device == "cpu" and case.norm == "rms":
        return ["torch has no RMSNorm backward kernel for a CPU: autograd through F.rms_norm, several operators"]
    if case.device == "cpu" and case.dtype != "fp32":
        return ["of a 2-byte x, torch's CPU kernel keeps mean and rstd and sums dweight and dbias in low precision"]
    if case.device == "cuda" and case.norm == "rms" and _overridden():
        return ["this torch would hand the call to a vendored quack; that is switched off here, so this is torch's own"]
    return []


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    return with_operators(inputs, _plain, ["frozen"])


def forward_backward(inputs: Inputs) -> Callable[[], Grads]:
    import torch.nn.functional as F  # noqa: N812  # the name that the field knows it by

    case, shape = inputs.case, (inputs.case.cols,)
    if case.norm == "layer":
        return forward_and_backward(inputs, lambda x, weight, bias: F.layer_norm(x, shape, weight, bias, case.eps))
    return forward_and_backward(inputs, lambda x, weight, bias: F.rms_norm(x, shape, weight, case.eps))  # noqa: ARG005


def _plain(inputs: Inputs) -> Callable[[], Grads]:
    if inputs.case.norm == "layer":
        return _layer(inputs)
    return _rms_through_autograd(inputs) if inputs.case.device == "cpu" else _rms(inputs)


def _layer(inputs: Inputs) -> Callable[[], Grads]:
    import torch

    x, weight, bias, dy, cols = inputs.x, inputs.weight, inputs.bias, inputs.dy, [inputs.case.cols]
    _, mean, rstd = torch.ops.aten.native_layer_norm.default(x, cols, weight, bias, inputs.eps)
    backward = torch.ops.aten.native_layer_norm_backward.default
    wanted = [True, *_wanted(inputs, weight, bias)]
    return lambda: Grads(*backward(dy, x, cols, mean, rstd, weight, bias, wanted))


def _rms(inputs: Inputs) -> Callable[[], Grads]:
    import torch

    if _overridden():
        _python_native().disable_operations(*RMS_OPS)
    x, weight, dy, cols = inputs.x, inputs.weight, inputs.dy, [inputs.case.cols]
    _, rstd = torch.ops.aten._fused_rms_norm.default(x, cols, weight, inputs.eps)
    backward = torch.ops.aten._fused_rms_norm_backward.default
    wanted = [True, *_wanted(inputs, weight)]
    return lambda: Grads(*backward(dy, x, cols, rstd, weight, wanted))


def _rms_through_autograd(inputs: Inputs) -> Callable[[], Grads]:
    import torch

    x = inputs.x.detach().requires_grad_()
    (is_learned,), weight = _wanted(inputs, inputs.weight), inputs.weight
    leaves = [x, *([weight := weight.detach().requires_grad_()] if weight is not None and is_learned else [])]
    y = torch.nn.functional.rms_norm(x, (inputs.case.cols,), weight, inputs.eps)

    def backward() -> Grads:
        dx, *parameters = torch.autograd.grad(y, leaves, inputs.dy, retain_graph=True)
        return Grads(dx, parameters[0] if parameters else None)

    return backward


def _wanted(inputs: Inputs, *parameters: torch.Tensor | None) -> list[bool]:
    """Which parameters get a gradient."""
    return [each is not None and "frozen" not in inputs.case.features for each in parameters]


def _torch_release() -> tuple[int, ...]:
    """The installed torch's (major, minor); a high one where there is none, which `requires` reports."""
    try:
        return tuple(int(part) for part in re.findall(r"\d+", installed_version("torch"))[:2])
    except PackageNotFoundError:
        return (99, 0)


def _overridden() -> bool:
    """Whether torch has registered its vendored quack for aten's RMSNorm (SM 9.x and 10.x, where cutlass-dsl is there).

    TORCH_DISABLE_NATIVE_JIT=1, set before torch is imported, keeps it from being registered.
    """
    try:
        return RMS_OPS[1] in _python_native().get_dsl_operations("cutedsl")
    except (ImportError, AttributeError):
        return False  # a torch that has no such overrides


def _python_native() -> Any:
    return import_module("torch.backends.python_native")
