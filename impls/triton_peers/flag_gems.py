"""FlagGems' Triton LayerNorm and RMSNorm backward, called directly."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import Grads, Inputs, NormCase, contiguous_rows

from ..libraries.autotuner import tuned
from ..libraries.rows import of_rows

name = "flag-gems"
version = 0
requires = ("flag_gems", "triton")
imports = ("flag_gems.ops.layernorm",)
install = "pip install --no-deps flag-gems && pip install sqlalchemy pyyaml packaging"
compiles_ahead = True
slow_to_compile = True  # each configuration of its tuners, forward and backward


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "Triton kernels need a GPU"
    if case.zero_centred:
        return "FlagGems has no zero-centred weight"
    if case.rows == 0:
        return "FlagGems launches a program a row: none is an invalid launch"
    if case.norm == "rms" and not case.weight:
        return "FlagGems' RMSNorm always has a weight"
    if case.norm == "rms" and case.weight_dtype != case.dtype:
        return "FlagGems' RMSNorm gives dweight in x's dtype"
    return None


def notes(case: NormCase) -> list[str]:
    if case.norm == "rms" or case.dtype == "fp32":
        return []
    return ["its LayerNorm saves mean and rstd in x's dtype"]


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    layer, x, cols = inputs.case.norm == "layer", contiguous_rows(inputs.x), [inputs.case.cols]
    ops: Any = import_module("flag_gems.ops.layernorm" if layer else "flag_gems.ops.rms_norm")
    weight, bias, eps = inputs.weight, inputs.bias, inputs.eps
    wanted = [True, weight is not None, bias is not None]
    if layer:
        _, mean, rstd = ops.layer_norm(x, cols, weight, bias, eps)
        backward = of_rows(inputs, lambda dy: ops.layer_norm_backward(dy, x, cols, mean, rstd, weight, bias, wanted))
    else:
        _, inverse = ops.rms_norm_forward(x, cols, weight, eps)
        backward = of_rows(inputs, lambda dy: ops.rms_norm_backward(dy, x, inverse, cols, weight, eps))
    return tuned(backward, ops, "backward")
