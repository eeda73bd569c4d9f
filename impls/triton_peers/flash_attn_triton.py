"""flash-attention's Triton LayerNorm and RMSNorm backward, of its own autograd function."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import ITEM_BYTES, Chosen, Grads, Inputs, NormCase

from ..libraries.autotuner import best_configs
from ..libraries.importing import import_failure
from ..libraries.recorded import recorded

name = "flash-attn-triton"
requires = ("flash_attn", "triton")
install = "pip install flash-attn --no-build-isolation"
compiles_ahead = True

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
    if case.zero_centred:
        return "no zero-centred weight in every version of flash-attention"
    if case.rows == 0:
        return "flash-attention launches one program a row of the forward: none is an invalid launch"
    if case.cols * ITEM_BYTES[case.dtype] > WIDEST_BYTES:
        return f"flash-attention's Triton norms take rows of at most {WIDEST_BYTES} bytes"
    return None


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    ops: Any = import_module(MODULE)

    def forward(x: Any, weight: Any, bias: Any) -> Any:
        return ops.layer_norm_fn(x, weight, bias, eps=inputs.eps, is_rms_norm=inputs.case.norm == "rms")

    backward, _ = recorded(inputs, forward)
    backward()  # compiled and tuned by the first call
    return Chosen(backward, best_configs(ops, "bwd"))
