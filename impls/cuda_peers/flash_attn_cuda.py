"""flash-attention's CUDA LayerNorm and RMSNorm backward, with residual, dropout and parallel, called directly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from harness.cases import Grads, Inputs, NormCase, contiguous_rows

from ..libraries.installed import extension_failure

if TYPE_CHECKING:
    import torch

name = "flash-attn-cuda"
version = 0
requires = ("dropout_layer_norm",)
install = (
    "build csrc/layer_norm of https://github.com/Dao-AILab/flash-attention for this GPU, with the hidden sizes wanted"
)
handles = {"residual", "dropout", "parallel", "parallel-tied"}

WIDEST = 8192  # columns
NO_SCALES = (None, None, None, None)  # of rows and columns, and no subsets of x and z


def missing() -> str | None:
    return extension_failure("dropout_layer_norm")


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
    """As its own autograd functions call it, without scales or subsets; its forward is needed for the statistics alone.

    The gradients of a residual and of what is added to it are asked for apart only where dropout makes them differ.
    """
    import_module("torch")  # loads the libraries that the extension links to
    extension: Any = import_module("dropout_layer_norm")
    x, rms = contiguous_rows(inputs.x), inputs.case.norm == "rms"
    _, _, _, mean, rstd = extension.dropout_add_ln_fwd(
        x, None, inputs.weight, inputs.bias, *NO_SCALES, 0.0, inputs.eps, 1.0, 0, None, False, rms
    )
    call = _parallel if {"parallel", "parallel-tied"} & set(inputs.case.features) else _single
    return call(extension, inputs, x, mean, rstd)


def _single(extension: Any, inputs: Inputs, x: Any, mean: Any, rstd: Any) -> Callable[[], Grads]:
    case, given, weight = inputs.case, inputs.tensors(), inputs.weight
    mask, dropout = _rows(given, "mask"), "dropout" in case.features

    def backward() -> Grads:
        branch, residual, dweight, dbias, *_ = extension.dropout_add_ln_bwd(
            contiguous_rows(inputs.dy), _rows(given, "dres"), x, None, mask, mean, rstd, weight,
            *NO_SCALES, case.dropout_p, 1.0, 0, dropout, case.norm == "rms",
        )  # fmt: skip
        branches = {"dbranch": branch} if dropout else {}
        return _grads(inputs, residual if dropout else branch, branches, dweight=dweight, dbias=dbias)

    return backward


def _parallel(extension: Any, inputs: Inputs, x: Any, mean: Any, rstd: Any) -> Callable[[], Grads]:
    case, given, weight = inputs.case, inputs.tensors(), inputs.weight
    call = extension.dropout_add_ln_parallel_residual_bwd
    masks, dropout = (_rows(given, "mask"), _rows(given, "mask1")), "dropout" in case.features

    def backward() -> Grads:
        branch, branch1, residual, dweight, dbias, dweight1, dbias1, *_ = call(
            contiguous_rows(inputs.dy), _rows(given, "dy1"), _rows(given, "dres"), x, *masks, mean, rstd,
            weight, given.get("weight1"), case.dropout_p, "mask1" in given, dropout, case.norm == "rms",
        )  # fmt: skip
        branches = {"dbranch": branch} if dropout else {}
        branches |= {"dbranch1": branch1} if "mask1" in given else {}
        parameters = {"dweight": dweight, "dbias": dbias}
        parameters |= {"dweight1": dweight1, "dbias1": dbias1} if "weight1" in given else {}
        return _grads(inputs, residual if dropout else branch, branches, **parameters)

    return backward


def _rows(given: Mapping[str, torch.Tensor], name: str) -> torch.Tensor | None:
    """A tensor as the extension takes it, None where the case has none of this name."""
    return contiguous_rows(given[name]) if name in given else None


def _grads(inputs: Inputs, dx: torch.Tensor, branches: dict[str, torch.Tensor], **parameters: torch.Tensor) -> Grads:
    """The gradients that the case has: the extension gives one of a bias that is not there."""
    shape, bias = inputs.x.shape, inputs.case.bias
    extra = {name: branch.view(shape) for name, branch in branches.items()}
    kept = {name: gradient for name, gradient in parameters.items() if bias or "bias" not in name}
    return Grads(dx.view(shape), kept.pop("dweight"), kept.pop("dbias", None), extra=extra | kept)
