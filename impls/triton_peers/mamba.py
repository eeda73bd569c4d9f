"""Mamba's Triton RMSNorm and LayerNorm backward, gated in either order, of its own autograd function."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import ITEM_BYTES, Grads, Inputs, NormCase

from ..libraries.importing import import_failure
from ..libraries.recorded import PLAIN, recorded

name = "mamba"
requires = ("mamba_ssm", "triton")
install = "pip install mamba-ssm --no-build-isolation"
compiles_ahead = True
handles = {"gated", "gated-norm-first"}

MODULE = "mamba_ssm.ops.triton.layernorm_gated"
WIDEST_BYTES = 64 * 1024  # a row


def missing() -> str | None:
    # Its package imports the CUDA extension, which this module does not use.
    return import_failure("mamba_ssm", MODULE)


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "Triton kernels need a GPU"
    if not case.weight or case.zero_centred:
        return "Mamba's norms always have a weight, and none that is zero-centred"
    if case.rows == 0:
        return "Mamba launches a program a row of the forward: none is an invalid launch"
    if case.cols * ITEM_BYTES[case.dtype] > WIDEST_BYTES:
        return f"Mamba's norms take rows of at most {WIDEST_BYTES} bytes"
    return None


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    ops: Any = import_module(MODULE)
    function, first = ops.rmsnorm_fn if inputs.case.norm == "rms" else ops.layernorm_fn, not inputs.case.gate_first

    def norm(x: Any, weight: Any, bias: Any, z: Any = None) -> Any:
        return function(x, weight, bias, z=z, eps=inputs.eps, norm_before_gate=first)

    return recorded(inputs, norm, (*PLAIN, "dz"))[0]
