"""QuACK's CuTe-DSL RMSNorm backward whose last program sums the partial gradients, of an unreleased PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import ITEM_BYTES, Grads, Inputs, NormCase, contiguous_rows

from ..libraries.installed import cute_dsl_failure
from ..libraries.rows import of_rows

name = "quack-fused-sum"
version = 0
requires = ("torch", "cutlass")
outside = "a proposal that quack has not merged"
install = "build PyTorch at 878c34fc, or put torch/_native/ops/norm of that revision into the installed torch"

MODULE, FORWARD, BACKWARD = "torch._native.ops.norm.norms", "cutedsl_rmsnorm_fwd", "cutedsl_rmsnorm_bwd"
WIDEST = 8192  # columns that it sums itself: beyond, a cluster shares a row, and torch sums


def missing() -> str | None:
    if failure := cute_dsl_failure():
        return failure  # without the seconds that torch takes
    try:
        sums_itself = hasattr(import_module(MODULE), BACKWARD)
    except ImportError:
        sums_itself = False
    return None if sums_itself else f"this torch has no quack that sums by itself; {install}"


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "CuTe-DSL kernels need an NVIDIA GPU"
    if case.norm == "layer" or not case.weight or case.zero_centred:
        return "the quack that sums by itself is an RMSNorm with a weight that is not zero-centred"
    if case.rows == 0:
        return "the quack that sums by itself takes at least one row"
    if case.cols > WIDEST:
        return f"quack sums by itself up to {WIDEST} columns"
    if ITEM_BYTES[case.dtype] == 2 and case.cols % 2:
        return "quack copies at least 4 bytes at a time, so a 2-byte dtype needs an even number of columns"
    return None


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    ops: Any = import_module(MODULE)
    x, weight, shape = contiguous_rows(inputs.x), inputs.weight, [inputs.case.cols]
    _, rstd = getattr(ops, FORWARD)(x, weight, shape, inputs.eps)
    function = getattr(ops, BACKWARD)
    backward = of_rows(inputs, lambda dy: function(dy, x, rstd, weight, shape))
    backward()  # compiled by the first call
    return backward
