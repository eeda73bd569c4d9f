"""NVIDIA apex's fused LayerNorm and RMSNorm backward; -mem keeps y instead of x (memory-efficient)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import Grads, Inputs, NormCase

from ..libraries.installed import apex_failure

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


def prepare(inputs: Inputs, keeps_y: bool) -> Callable[[], Grads]:
    """As apex's autograd functions call the extension, which make x and dy contiguous first."""
    import_module("torch")  # loads the libraries that the extension links to
    apex: Any = import_module("fused_layer_norm_cuda")
    case, x, cols, eps = inputs.case, inputs.x.contiguous(), (inputs.case.cols,), inputs.eps
    norm, affine = "" if case.norm == "layer" else "rms_", "_affine" if case.weight else ""
    given = (inputs.weight, inputs.bias) if case.norm == "layer" else (inputs.weight,)
    parameters = given if case.weight else ()
    y, *statistics = getattr(apex, f"{norm}forward{affine}")(x, cols, *parameters, eps)
    if keeps_y:
        statistics[:-1] = [None] * len(statistics[:-1])  # no mean: only rstd is saved
    function, kept = getattr(apex, f"{norm}backward{affine}"), y if keeps_y else x

    def backward() -> Grads:
        gradients = function(inputs.dy.contiguous(), *statistics, kept, cols, *parameters, eps, keeps_y)
        return Grads(*gradients) if parameters else Grads(gradients, None)

    return backward
