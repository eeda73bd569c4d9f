"""flash-linear-attention's Triton LayerNorm and RMSNorm backward, also gated, of its own autograd functions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import ITEM_BYTES, Grads, Inputs, NormCase

from ..libraries.autotuner import tuned
from ..libraries.recorded import PLAIN, behind_residual, recorded

name = "fla"
version = 1
requires = ("fla", "triton")
imports = ("fla.modules.layernorm",)
install = "pip install flash-linear-attention"
compiles_ahead = True
slow_to_compile = True  # each configuration of its tuners, forward and backward
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


# By the variant: the module, its functions of RMSNorm and LayerNorm (fla.modules has classes of them), what z is
# called, and in which order the gradients come.
FUNCTIONS = {
    "plain": ("layernorm", "rms_norm", "layer_norm", None, PLAIN),
    "gated-norm-first": ("fused_norm_gate", "rms_norm_gated", "layer_norm_gated", "g", ("dx", "dz", *PLAIN[1:])),
    "gated": ("layernorm_gated", "rmsnorm_fn", "layernorm_fn", "z", (*PLAIN, "dz")),
}


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    features = inputs.case.features
    variant = next((feature for feature in features if feature in FUNCTIONS), "plain")
    module, rms, layer, gate, gives = FUNCTIONS[variant]
    ops: Any = import_module(f"fla.modules.{module}")
    function = getattr(ops, rms if inputs.case.norm == "rms" else layer)
    options: dict[str, Any] = {"eps": inputs.eps} | ({"norm_before_gate": False} if variant == "gated" else {})

    def norm(x: Any, weight: Any, bias: Any, z: Any = None, **residual: Any) -> Any:
        gates = {gate: z} if gate else {}
        return function(x, **gates, weight=weight, bias=bias, **residual, **options)

    def add(branch: Any, residual: Any, **others: Any) -> Any:
        return norm(branch, **others, residual=residual, prenorm=True)

    backward, _ = recorded(inputs, behind_residual(add) if "residual" in features else norm, gives)
    return backward if variant == "gated" else tuned(backward, ops, "bwd")  # those tune nothing
