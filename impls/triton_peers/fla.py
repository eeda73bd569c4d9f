"""flash-linear-attention's Triton LayerNorm and RMSNorm backward, also gated, of its own autograd functions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import ITEM_BYTES, Grads, Inputs, NormCase

from ..libraries.autotuner import tuned
from ..libraries.recorded import PLAIN, behind_residual, recorded

name = "fla"
version = 0
requires = ("fla", "triton")
install = "pip install flash-linear-attention"
compiles_ahead = True
handles = {"residual", "gated", "gated-norm-first"}

WIDEST_BYTES = 64 * 1024  # a row


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "Triton kernels need a GPU"
    if case.zero_centred:
        return "flash-linear-attention has no zero-centred weight"
    if case.rows == 0:
        return "flash-linear-attention launches a program a row: none is an invalid launch"
    if case.cols * ITEM_BYTES[case.dtype] > WIDEST_BYTES:
        return f"flash-linear-attention's norms take rows of at most {WIDEST_BYTES} bytes"
    if case.gate_first and (not case.weight or "residual" in case.features):
        return "flash-linear-attention's norm of x * silu(z) always has a weight, and never a residual"
    return None


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    has = set(inputs.case.features)
    if "gated" in has:
        return _gate_before(inputs)
    return _gate_behind(inputs) if "gated-norm-first" in has else _ungated(inputs)


def _ungated(inputs: Inputs) -> Callable[[], Grads]:
    """fla.modules.RMSNorm and LayerNorm."""
    ops: Any = import_module("fla.modules.layernorm")
    function, eps = ops.rms_norm if inputs.case.norm == "rms" else ops.layer_norm, inputs.eps

    def norm(x: Any, weight: Any, bias: Any) -> Any:
        return function(x, weight, bias, eps=eps)

    def add(branch: Any, residual: Any, weight: Any, bias: Any) -> Any:
        return function(branch, weight, bias, residual, eps, prenorm=True)

    forward = behind_residual(add) if "residual" in inputs.case.features else norm
    return tuned(recorded(inputs, forward)[0], ops, "bwd")


def _gate_behind(inputs: Inputs) -> Callable[[], Grads]:
    """norm(x) * silu(z): fla.modules.FusedRMSNormGated and FusedLayerNormGated."""
    ops: Any = import_module("fla.modules.fused_norm_gate")
    function, eps = ops.rms_norm_gated if inputs.case.norm == "rms" else ops.layer_norm_gated, inputs.eps

    def norm(x: Any, weight: Any, bias: Any, z: Any) -> Any:
        return function(x, z, weight, bias, eps=eps)

    def add(branch: Any, residual: Any, weight: Any, bias: Any, z: Any) -> Any:
        return function(branch, z, weight, bias, residual=residual, prenorm=True, eps=eps)

    forward = behind_residual(add) if "residual" in inputs.case.features else norm
    return tuned(recorded(inputs, forward, ("dx", "dz", "dweight", "dbias"))[0], ops, "bwd")


def _gate_before(inputs: Inputs) -> Callable[[], Grads]:
    """norm(x * silu(z)): fla.modules.RMSNormGated and LayerNormGated, which tune nothing."""
    ops: Any = import_module("fla.modules.layernorm_gated")
    function, eps = ops.rmsnorm_fn if inputs.case.norm == "rms" else ops.layernorm_fn, inputs.eps

    def norm(x: Any, weight: Any, bias: Any, z: Any) -> Any:
        return function(x, weight, bias, z=z, eps=eps, norm_before_gate=False)

    return recorded(inputs, norm, (*PLAIN, "dz"))[0]
