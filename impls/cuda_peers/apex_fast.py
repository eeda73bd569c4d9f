"""NVIDIA apex's fast LayerNorm backward, for 26 fixed hidden sizes; -mem keeps y instead of x (memory-efficient)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import Grads, Inputs, NormCase, contiguous_rows

from ..libraries.installed import apex_failure
from ..libraries.rows import of_rows

name = "apex-fast"
version = 0
requires = ("fast_layer_norm",)
install = "build https://github.com/NVIDIA/apex with APEX_FAST_LAYER_NORM=1"
variants = {"apex-fast": False, "apex-fast-mem": True}  # the extension's last argument, memory_efficient

HIDDEN_SIZES = frozenset(
    (768, 1024, 1536, 2048, 2304, 3072, 3840, 4096, 5120, 6144, 8192, 10240, 12288, 12800, 14336, 15360, 16384,
     18432, 20480, 24576, 25600, 30720, 32768, 40960, 49152, 65536)
)  # fmt: skip


def missing() -> str | None:
    return apex_failure("fast_layer_norm", "APEX_FAST_LAYER_NORM=1")


def unsupported(case: NormCase, _keeps_y: bool) -> str | None:
    if case.device == "cpu":
        return "apex's kernels need an NVIDIA GPU"
    if case.norm == "rms":
        return "apex's fast kernels are LayerNorm alone"
    if case.cols not in HIDDEN_SIZES:
        return f"compiled for {len(HIDDEN_SIZES)} hidden sizes from 768 to 65536, of which {case.cols} is none"
    if not (case.weight and case.bias) or case.zero_centred:
        return "apex's fast LayerNorm always has a weight, not zero-centred, and a bias"
    if case.weight_dtype != case.dtype:
        return "apex's fast LayerNorm takes dy in the weight's dtype, which must then be x's"
    return None


def notes(_case: NormCase, keeps_y: bool) -> list[str]:
    return ["recovers xhat from y by dividing by the weight as it is: a zero weight gives NaN"] if keeps_y else []


def prepare(inputs: Inputs, keeps_y: bool) -> Callable[[], Grads]:
    import_module("torch")  # loads the libraries that the extension links to
    apex: Any = import_module("fast_layer_norm")
    x = contiguous_rows(inputs.x)
    y, mean, rstd = apex.ln_fwd(x, inputs.weight, inputs.bias, inputs.eps)
    if keeps_y:
        arguments = (y, None, rstd, inputs.weight, inputs.bias, True)
    else:
        arguments = (x, mean, rstd, inputs.weight, None, False)

    # The rest of what it gives are its fp32 partials.
    return of_rows(inputs, lambda dy: apex.ln_bwd(dy, *arguments)[:3])
