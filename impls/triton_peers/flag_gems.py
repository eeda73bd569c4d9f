"""FlagGems' Triton LayerNorm and RMSNorm backward, called directly."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import Grads, Inputs, NormCase, contiguous_rows

from ..libraries.autotuner import tuned

name = "flag-gems"
version = 0
requires = ("flag_gems", "triton")
install = "pip install --no-deps flag-gems && pip install sqlalchemy pyyaml packaging"
compiles_ahead = True


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
    backward = _layer(inputs) if inputs.case.norm == "layer" else _rms(inputs)
    ops: Any = import_module("flag_gems.ops.layernorm" if inputs.case.norm == "layer" else "flag_gems.ops.rms_norm")
    return tuned(backward, ops, "backward")


def _layer(inputs: Inputs) -> Callable[[], Grads]:
    ops: Any = import_module("flag_gems.ops.layernorm")
    x, weight, bias, cols = contiguous_rows(inputs.x), inputs.weight, inputs.bias, [inputs.case.cols]
    _, mean, rstd = ops.layer_norm(x, cols, weight, bias, inputs.eps)
    wanted = [True, weight is not None, bias is not None]

    def backward() -> Grads:
        dx, *parameters = ops.layer_norm_backward(contiguous_rows(inputs.dy), x, cols, mean, rstd, weight, bias, wanted)
        return Grads(dx.view(inputs.x.shape), *parameters)

    return backward


def _rms(inputs: Inputs) -> Callable[[], Grads]:
    ops: Any = import_module("flag_gems.ops.rms_norm")
    x, weight, cols = contiguous_rows(inputs.x), inputs.weight, [inputs.case.cols]
    _, inverse = ops.rms_norm_forward(x, cols, weight, inputs.eps)

    def backward() -> Grads:
        dx, dweight = ops.rms_norm_backward(contiguous_rows(inputs.dy), x, inverse, cols, weight, inputs.eps)
        return Grads(dx.view(inputs.x.shape), dweight)

    return backward
