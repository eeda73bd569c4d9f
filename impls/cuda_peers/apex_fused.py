"""NVIDIA apex's fused LayerNorm and RMSNorm backward; -mem keeps y instead of x (memory-efficient)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import Grads, Inputs, NormCase

from ..libraries.extensions import apex_failure

name = "apex-fused"
version = 0
requires = ("fused_layer_norm_cuda",)
install = "build https://github.com/NVIDIA/apex with APEX_CUDA_EXT=1"
variants = {"apex-fused": False, "apex-fused-mem": True}  # the extension's last argument, memory_efficient


def missing() -> str | None:
    return apex_failure("fused_layer_norm_cuda", "APEX_CUDA_EXT=1")


def unsupported(case: NormCase, _keeps_y: bool) -> str | None:
    if case.device == "cpu":
        return "apex's kernels need an NVIDIA GPU"
    if case.rows == 0:
        return "apex launches one block a row: none is an invalid launch"
    if case.zero_centred:
        return "apex has no zero-centred weight"
    if case.norm == "layer" and case.weight != case.bias:
        return "apex's LayerNorm has both a weight and a bias, or neither"
    if case.weight and case.weight_dtype != case.dtype:
        # forward_affine_mixed_dtypes gives y, and so dy, the weight's dtype: dy here has x's.
        return "with a weight of another dtype, apex takes dy in the weight's dtype, not in x's"
    return None


def notes(case: NormCase, keeps_y: bool) -> list[str]:
    if not case.weight:
        return []
    if keeps_y:
        return [
            "recovers xhat from y by dividing by the weight, whose magnitude it first raises to at least eps; "
            "apex's forward rounds xhat, its product with the weight, and y"
        ]
    return ["for dx, apex raises the weight's magnitude to at least eps"]


# apex's autograd functions make x and dy contiguous before they call the extension.
def prepare(inputs: Inputs, keeps_y: bool) -> Callable[[], Grads]:
    import_module("torch")  # loads the libraries that the extension links to
    apex: Any = import_module("fused_layer_norm_cuda")
    return _layer(apex, inputs, keeps_y) if inputs.case.norm == "layer" else _rms(apex, inputs, keeps_y)


def _layer(apex: Any, inputs: Inputs, keeps_y: bool) -> Callable[[], Grads]:
    weight, bias, cols, eps = inputs.weight, inputs.bias, (inputs.case.cols,), inputs.eps
    x = inputs.x.contiguous()
    if weight is None:
        y, mean, rstd = apex.forward(x, cols, eps)
    else:
        y, mean, rstd = apex.forward_affine(x, cols, weight, bias, eps)
    kept, mean = (y, None) if keeps_y else (x, mean)
    if weight is None:
        return lambda: Grads(apex.backward(inputs.dy.contiguous(), mean, rstd, kept, cols, eps, keeps_y), None)

    def backward() -> Grads:
        return Grads(*apex.backward_affine(inputs.dy.contiguous(), mean, rstd, kept, cols, weight, bias, eps, keeps_y))

    return backward


def _rms(apex: Any, inputs: Inputs, keeps_y: bool) -> Callable[[], Grads]:
    weight, cols, eps = inputs.weight, (inputs.case.cols,), inputs.eps
    x = inputs.x.contiguous()
    if weight is None:
        y, rstd = apex.rms_forward(x, cols, eps)
    else:
        y, rstd = apex.rms_forward_affine(x, cols, weight, eps)
    kept = y if keeps_y else x
    if weight is None:
        return lambda: Grads(apex.rms_backward(inputs.dy.contiguous(), rstd, kept, cols, eps, keeps_y), None)

    def backward() -> Grads:
        return Grads(*apex.rms_backward_affine(inputs.dy.contiguous(), rstd, kept, cols, weight, eps, keeps_y))

    return backward
