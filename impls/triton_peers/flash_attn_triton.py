"""flash-attention's Triton LayerNorm and RMSNorm backward, with residual and parallel, of its own function."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

from harness.cases import ITEM_BYTES, Grads, Inputs, NormCase, UnsupportedError

from ..libraries.installed import import_failure
from ..libraries.layer_norm_fn import backward_of

name = "flash-attn-triton"
version = 1
requires = ("flash_attn", "triton")
install = "pip install flash-attn --no-build-isolation"
compiles_ahead = True
slow_to_compile = True  # each configuration of its tuners, forward and backward
handles = {"residual", "parallel", "parallel-tied"}

MODULE = "flash_attn.ops.triton.layer_norm"
WIDEST_BYTES = 64 * 1024  # a row


def missing() -> str | None:
    # Its package imports the CUDA extension, and this module asks for the GPU's warp size.
    return import_failure("flash_attn", MODULE)


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "Triton kernels need a GPU"
    if not case.weight:
        return "flash-attention's Triton norms always have a weight"
    if case.rows == 0:
        return "flash-attention launches one program a row of the forward: none is an invalid launch"
    if case.cols * ITEM_BYTES[case.dtype] > WIDEST_BYTES:
        return f"flash-attention's Triton norms take rows of at most {WIDEST_BYTES} bytes"
    return None


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    ops: Any = import_module(MODULE)
    options: dict[str, Any] = {}
    if inputs.case.zero_centred:
        if "zero_centered_weight" not in signature(ops.layer_norm_fn).parameters:
            raise UnsupportedError("this version of flash-attention has no zero-centred weight")
        options["zero_centered_weight"] = True
    return backward_of(ops, inputs, **options)
