"""flash-linear-attention's Triton LayerNorm and RMSNorm backward, of its own autograd function."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import ITEM_BYTES, Chosen, Grads, Inputs, NormCase

from ..libraries.autotuner import best_configs
from ..libraries.recorded import recorded

name = "fla"
requires = ("fla", "triton")
install = "pip install flash-linear-attention"
compiles_ahead = True

MODULE = "fla.modules.layernorm"
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
    return None


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    ops: Any = import_module(MODULE)
    function = ops.rms_norm if inputs.case.norm == "rms" else ops.layer_norm
    backward, _ = recorded(inputs, lambda x, weight, bias: function(x, weight, bias, eps=inputs.eps))
    backward()  # compiled and tuned by the first call
    return Chosen(backward, best_configs(ops, "bwd"))
