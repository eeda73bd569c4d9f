"""The Triton LayerNorm and RMSNorm backward of AMD's Transformer Engine, also on NVIDIA GPUs, called directly."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.cases import ITEM_BYTES, Grads, Inputs, NormCase, contiguous_rows

from ..libraries.parts import without_the_rest
from ..libraries.rows import of_rows

name = "transformer-engine-rocm"
version = 0
requires = ("triton",)
CHECKOUT = "TransformerEngine"  # the folder of a checkout; NVIDIA's package has the same name as what lies in it
uses = (CHECKOUT, "transformer_engine")
install = (
    "git clone https://github.com/ROCm/TransformerEngine, and put the folder that it lies in on PYTHONPATH; "
    "it need not be built"
)
compiles_ahead = True

PACKAGE = "transformer_engine.pytorch.triton_kernels"
# The module of the drop-in replacements, by its newer and its older name, with the bytes of the widest row for which
# its RMSNorm does not keep a partial gradient of every row.
OPERATORS = {"norms_common": 16 * 1024, "norms": 64 * 1024}
KERNELS = (*OPERATORS, "utils", "norm_common", "rmsnorm", "layernorm")  # the rest of the package is fp8 to them


def outside() -> str | None:
    torch: Any = sys.modules.get("torch")  # a list of implementations does without it
    return None if torch and torch.version.hip else "made for AMD's GPUs, and elsewhere run without its tuner"


def missing() -> str | None:
    if not any(map(find_spec, uses)):
        return f"not installed: {CHECKOUT}; {install}"
    try:
        _operators()
    except Exception as error:
        return f"its Triton norms cannot be imported ({type(error).__name__}: {error}); {install}"
    return None


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "Triton kernels need a GPU"
    if case.rows == 0:
        return "AMD's Transformer Engine takes at least one row"
    if not case.weight or (case.norm == "layer" and not case.bias):
        return "Transformer Engine's norms always have a weight, and its LayerNorm a bias"
    if case.weight_dtype != case.dtype:
        return "Transformer Engine takes dy and weight of one dtype"
    return None


def notes(case: NormCase) -> list[str]:
    if case.norm == "layer":
        return []
    widest_bytes = OPERATORS[_operators().__name__.rpartition(".")[2]]
    wide = case.cols * ITEM_BYTES[case.dtype] > widest_bytes
    return ["without its tuner, which is for AMD's GPUs", *["stores a partial gradient in fp32 of every row"] * wide]


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    """As its drop-in replacements of tex.rmsnorm_bwd and tex.layernorm_bwd are called, with nothing quantized."""
    ops: Any = _operators()
    case, x, weight = inputs.case, contiguous_rows(inputs.x), inputs.weight
    common = (inputs.eps, None, None, x.dtype, 0, case.zero_centred)
    if case.norm == "layer":
        function = ops.te_layernorm_bwd_triton
        saved = ops.te_layernorm_fwd_triton(x, weight, inputs.bias, *common, autotune=False)[1:]
    else:
        function = ops.te_rmsnorm_bwd_triton
        saved = ops.te_rmsnorm_fwd_triton(x, weight, *common, autotune=False)[2:]
    untuned = {"autotune": False} if "autotune" in signature(function).parameters else {}

    return of_rows(inputs, lambda dy: function(dy, x, *saved, weight, 0, case.zero_centred, **untuned))


@lru_cache
def _operators() -> ModuleType:
    """The module of the drop-in replacements, without the compiled library that the whole package imports.

    Raises ImportError where the Transformer Engine that is here has no such module.
    """
    packages = [place / "transformer_engine" for place in _places(CHECKOUT)] + _places("transformer_engine")
    modules = (package / "pytorch" / "triton_kernels" / f"{name}.py" for package in packages for name in OPERATORS)
    module = next(filter(Path.is_file, modules), None)
    if module is None:
        raise ImportError(f"no pytorch/triton_kernels/{next(iter(OPERATORS))}.py: it is not AMD's")
    with without_the_rest(module.parent, PACKAGE, KERNELS, {"get_sm_count": _multiprocessors}):
        return import_module(f"{PACKAGE}.{module.stem}")


def _places(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(place) for place in (spec.submodule_search_locations if spec else None) or ()]


def _multiprocessors() -> int:
    import torch

    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
