"""Transformer Engine's CUDA LayerNorm and RMSNorm backward, RMSNorm's with residual, called directly."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import Grads, Inputs, NormCase, contiguous_rows

from ..libraries.rows import of_rows

name = "transformer-engine"
version = 0
requires = ("transformer_engine", "transformer_engine_torch")
handles = {"rms": {"residual"}}
install = "pip install --no-build-isolation 'transformer_engine[pytorch]'"


def missing() -> str | None:
    try:
        import_module("transformer_engine.pytorch.constants")
    except ModuleNotFoundError as error:
        if error.name in requires:
            return None  # `requires` says it
        if (error.name or "").startswith("transformer_engine."):  # of AMD's, or built for another framework
            return f"the transformer_engine that is found lacks NVIDIA's part for PyTorch ({error.name}); {install}"
        return f"Transformer Engine cannot be imported: {error}"
    except Exception as error:
        return f"Transformer Engine cannot be imported: {type(error).__name__}: {error}"
    return None


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "Transformer Engine needs an NVIDIA GPU"
    if case.rows == 0:
        return "Transformer Engine takes at least one row"
    if not case.weight or (case.norm == "layer" and not case.bias):
        return "Transformer Engine's norms always have a weight, and its LayerNorm a bias"
    if case.weight_dtype != case.dtype:
        return "Transformer Engine takes dy and weight of one dtype"
    return None


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    """As transformer_engine.pytorch.ops call it: RMSNorm, LayerNorm and, fused, BackwardAddRMSNorm.

    No multiprocessor is left out.
    """
    dtypes: Any = import_module("transformer_engine.pytorch.constants").TE_DType
    tex: Any = import_module("transformer_engine_torch")  # it needs the libraries that transformer_engine has loaded
    case, x, weight = inputs.case, contiguous_rows(inputs.x), inputs.weight
    common, zero_centred = (inputs.eps, None, None, dtypes[x.dtype], 0, case.zero_centred), case.zero_centred
    if case.norm == "layer":
        _, mean, rstd = tex.layernorm_fwd(x, weight, inputs.bias, *common)
        return of_rows(inputs, lambda dy: tex.layernorm_bwd(dy, x, mean, rstd, weight, 0, zero_centred))
    _, _, rstd = tex.rmsnorm_fwd(x, weight, *common)
    if "residual" not in case.features:
        return of_rows(inputs, lambda dy: tex.rmsnorm_bwd(dy, x, rstd, weight, 0, zero_centred))

    def add(dy: Any) -> Any:
        return tex.rmsnorm_bwd_add(dy, x, contiguous_rows(inputs.dres), rstd, weight, 0, zero_centred)

    return of_rows(inputs, add)
