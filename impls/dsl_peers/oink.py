"""KernelAgent-Oink's CuTe-DSL RMSNorm, with residual, and LayerNorm backward for Blackwell, called directly."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from harness.cases import Grads, Inputs, NormCase, contiguous_rows

from ..libraries.installed import cute_dsl_failure
from ..libraries.rows import of_rows

name = "oink"
version = 0
requires = ("kernelagent_oink", "cutlass")
install = "pip install 'git+https://github.com/meta-pytorch/KernelAgent#subdirectory=oink'"
handles = {"rms": {"residual"}}

VECTOR = 8  # columns that one store of a partial gradient writes


def outside() -> str | None:
    here = (_capability() or (0, 0)) >= (10, 0)
    return None if here else "made for Blackwell, and elsewhere called around its own gate"


def missing() -> str | None:
    return cute_dsl_failure() if find_spec("kernelagent_oink") else None


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "CuTe-DSL kernels need an NVIDIA GPU"
    if case.zero_centred or (case.norm == "layer" and not case.weight):
        return "Oink has no zero-centred weight, and its LayerNorm always has a weight"
    if case.weight and case.weight_dtype not in (case.dtype, "fp32"):
        return "Oink takes the weight in x's dtype or in fp32"
    if case.rows == 0 or case.cols % VECTOR:
        return f"Oink takes at least one row, and multiples of {VECTOR} columns"
    if "residual" in case.features and (_capability() or (10, 0)) < (10, 0):
        return "Oink's RMSNorm with residual does not compile below compute capability 10.0, for which it is made"
    return None


def _capability() -> tuple[int, int] | None:
    """That of the GPU that is here, once torch is loaded: a list of implementations does without it.

    Oink's own dispatch (`_is_supported` of its aten_override.py) leaves GPUs below 10.0 to torch.
    """
    torch: Any = sys.modules.get("torch")
    return torch.cuda.get_device_capability() if torch and torch.cuda.is_available() else None


def notes(case: NormCase) -> list[str]:
    atomic = case.norm == "rms" and not case.features and case.cols == 8192 and case.rows >= 65536
    if atomic and case.dtype != "fp32" and case.weight_dtype == "fp32":
        return ["adds up dweight by atomics at this size, in no fixed order"]
    return []


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    call = _layer(inputs) if inputs.case.norm == "layer" else _rms(inputs)
    backward = of_rows(inputs, call)
    backward()  # compiled by the first call
    return backward


def _rms(inputs: Inputs) -> Callable[[Any], Any]:
    ops: Any = import_module("kernelagent_oink.blackwell.rmsnorm")
    x, weight = contiguous_rows(inputs.x), inputs.weight
    _, rstd, _ = ops.rmsnorm_forward(x, weight, eps=inputs.eps, store_rstd=True)
    if "residual" not in inputs.case.features:
        return lambda dy: ops.rmsnorm_backward(x, weight, dy, rstd)[:2]
    return lambda dy: ops.rmsnorm_backward(x, weight, dy, rstd, contiguous_rows(inputs.dres), has_residual=True)[:2]


def _layer(inputs: Inputs) -> Callable[[Any], Any]:
    ops: Any = import_module("kernelagent_oink.blackwell.layernorm")
    x, weight, bias = contiguous_rows(inputs.x), inputs.weight, inputs.bias
    _, rstd, mean = ops.layernorm(x, weight, bias, inputs.eps, return_rstd=True, return_mean=True)
    return lambda dy: ops.layernorm_backward(dy, x, weight, rstd, mean, bias)
