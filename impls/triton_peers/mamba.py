"""Mamba's Triton RMSNorm and LayerNorm backward, also with residual, parallel and gated, of its own functions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import ITEM_BYTES, Grads, Inputs, NormCase

from ..libraries.installed import import_failure
from ..libraries.layer_norm_fn import backward_of
from ..libraries.recorded import PLAIN, recorded

name = "mamba"
version = 1
requires = ("mamba_ssm", "triton")
install = "pip install mamba-ssm --no-build-isolation"
compiles_ahead = True
slow_to_compile = True  # each configuration of its tuners, forward and backward
handles = {"residual", "parallel", "parallel-tied", "gated", "gated-norm-first"}

UNGATED, GATED = "mamba_ssm.ops.triton.layer_norm", "mamba_ssm.ops.triton.layernorm_gated"
WIDEST_BYTES = 64 * 1024  # a row


def missing() -> str | None:
    # Its package imports the CUDA extension, which these modules do not use.
    return import_failure("mamba_ssm", UNGATED) or import_failure("mamba_ssm", GATED)


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "Triton kernels need a GPU"
    if not case.weight or case.zero_centred:
        return "Mamba's norms always have a weight, and none that is zero-centred"
    if case.rows == 0:
        return "Mamba launches a program a row of the forward: none is an invalid launch"
    if case.cols * ITEM_BYTES[case.dtype] > WIDEST_BYTES:
        return f"Mamba's norms take rows of at most {WIDEST_BYTES} bytes"
    if _is_gated(case) and len(case.features) > 1:
        return "Mamba's gated norms have nothing else around them"
    return None


def _is_gated(case: NormCase) -> bool:
    return bool({"gated", "gated-norm-first"} & set(case.features))


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    """A gated norm is that of Mamba2's mixer; any other is that of its blocks."""
    if _is_gated(inputs.case):
        return _gated(inputs)
    return backward_of(import_module(UNGATED), inputs)


def _gated(inputs: Inputs) -> Callable[[], Grads]:
    """The norm of Mamba2's mixer, which tunes nothing."""
    ops: Any = import_module(GATED)
    function, first = ops.rmsnorm_fn if inputs.case.norm == "rms" else ops.layernorm_fn, not inputs.case.gate_first

    def norm(x: Any, weight: Any, bias: Any, z: Any) -> Any:
        return function(x, weight, bias, z=z, eps=inputs.eps, norm_before_gate=first)

    return recorded(inputs, norm, (*PLAIN, "dz"))[0]
