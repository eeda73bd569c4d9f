"""flash-attention's CUDA LayerNorm and RMSNorm backward, of its extension dropout_layer_norm, called directly."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import Grads, Inputs, NormCase, contiguous_rows

name = "flash-attn-cuda"
requires = ("dropout_layer_norm",)
install = (
    "build csrc/layer_norm of https://github.com/Dao-AILab/flash-attention for this GPU, with the hidden sizes wanted"
)

WIDEST = 8192  # columns


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "flash-attention's extension needs an NVIDIA GPU"
    if case.rows == 0:
        return "flash-attention's extension takes at least one row"
    if not case.weight or case.zero_centred:
        return "flash-attention's extension always has a weight, and none that is zero-centred"
    if case.cols % 8 or case.cols > WIDEST:
        return f"flash-attention's extension takes multiples of 8 columns, at most {WIDEST}"
    if case.weight_dtype not in (case.dtype, "fp32"):
        return "flash-attention's extension takes the weight in x's dtype or in fp32"
    return None


def notes(_case: NormCase) -> list[str]:
    return ["a hidden size for which the extension was not built is a segmentation fault"]


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    """As its own autograd function calls it, without dropout, residual, scales or subsets."""
    import_module("torch")  # loads the libraries that the extension links to
    extension: Any = import_module("dropout_layer_norm")
    case, x, weight, rms = inputs.case, contiguous_rows(inputs.x), inputs.weight, inputs.case.norm == "rms"
    nothing = (None, None, None, None)  # scales of rows and columns, and subsets of x and z
    _, _, _, mean, rstd = extension.dropout_add_ln_fwd(
        x, None, weight, inputs.bias, *nothing, 0.0, inputs.eps, 1.0, 0, None, False, rms
    )

    def backward() -> Grads:
        dx, _, dweight, dbias, *_ = extension.dropout_add_ln_bwd(
            contiguous_rows(inputs.dy), None, x, None, None, mean, rstd, weight, *nothing, 0.0, 1.0, 0, False, rms
        )
        return Grads(dx.view(inputs.x.shape), dweight, dbias if case.bias else None)

    return backward
