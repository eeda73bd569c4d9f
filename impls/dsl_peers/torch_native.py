"""The QuACK that torch carries from 2.13 on, which F.rms_norm runs where CuTe DSL is installed, called directly."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import ITEM_BYTES, Grads, Inputs, NormCase, contiguous_rows

from ..libraries.installed import cute_dsl_failure
from ..libraries.rows import of_rows

name = "torch-native"
version = 0
requires = ("torch", "cutlass")
install = "pip install 'torch>=2.13' 'nvidia-cutlass-dsl[cu13]'"

MODULE, FORWARD, BACKWARD = "torch._native.ops.norm.norms", "quack_rmsnorm_fwd", "quack_rmsnorm_bwd"
COPIES = (4, 8, 16)  # bytes that one thread may copy; torch takes its own kernel for other numbers of columns


def missing() -> str | None:
    if failure := cute_dsl_failure():
        return failure  # without the seconds that torch takes
    try:
        carries = hasattr(import_module(MODULE), BACKWARD)
    except ImportError:
        carries = False
    return None if carries else f"this torch carries no QuACK; {install}"


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "torch's native norms need an NVIDIA GPU"
    item_bytes = ITEM_BYTES[case.dtype]
    copied = math.gcd(case.cols, 16 // item_bytes) * item_bytes
    mixed = case.weight and case.weight_dtype != case.dtype
    if case.norm == "layer" or case.rows == 0 or mixed or copied not in COPIES:
        return "torch takes its own kernel for it, which is torch-eager"
    return "torch has no zero-centred weight" if case.zero_centred else None


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    """As torch's override of `aten::_fused_rms_norm_backward` does; the override itself is off, for torch-eager."""
    ops: Any = import_module(MODULE)
    x, weight, shape = contiguous_rows(inputs.x), inputs.weight, [inputs.case.cols]
    _, rstd = getattr(ops, FORWARD)(x, weight, shape, inputs.eps)
    function = getattr(ops, BACKWARD)
    backward = of_rows(inputs, lambda dy: function(dy, x, rstd, weight, shape, dw_mask=weight is not None))
    backward()  # compiled by the first call
    return backward
