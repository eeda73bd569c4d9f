"""Liger-Kernel's RMSNorm (llama or gemma casting, with residual) and LayerNorm backward, of its own functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from harness.cases import Chosen, Grads, Inputs, NormCase, UnsupportedError

from ..libraries.installed import cute_dsl_failure
from ..libraries.recorded import PLAIN, behind_residual, forward_and_backward, recorded

if TYPE_CHECKING:
    import torch

name = "liger"
version = 1
requires = ("liger_kernel", "triton")
imports = ("liger_kernel.ops",)
install = "pip install liger-kernel"
uses = ("cutlass",)  # which decides what LigerLayerNorm takes
for_speed = ("liger-triton", "liger-cutedsl")  # -gemma rounds otherwise
compiles_ahead = ("liger", "liger-gemma", "liger-triton")  # CuTe DSL keeps what it compiled in the process alone
handles = {"rms": {"residual"}}
in_place = True  # LigerRMSNorm's default writes dx over dy; LayerNorm leaves dy alone

CUTE_DSL = "nvidia-cutedsl"
MAX_COLS = 65536  # calculate_settings of the Triton kernels refuses more


@dataclass(frozen=True)
class Dispatch:
    """The casting mode of RMSNorm, and the implementation that Liger's dispatcher is asked for.

    Without one it is what LigerLayerNorm and LigerRMSNorm take by themselves. The backward has to be of a module whose
    name has `module` in it: an implementation that is asked for may hand a shape on to another one.
    """

    casting: str = "llama"
    implementation: str | None = None
    module: str = ""


variants = {
    "liger": Dispatch(),
    "liger-gemma": Dispatch("gemma"),
    "liger-triton": Dispatch(implementation="nvidia-triton"),
    "liger-cutedsl": Dispatch(implementation=CUTE_DSL, module="cutedsl"),
}


def missing(variant: Dispatch) -> str | None:
    return cute_dsl_failure() if variant.implementation == CUTE_DSL and find_spec("liger_kernel") else None


def unsupported(case: NormCase, variant: Dispatch) -> str | None:
    if case.device == "cpu":
        return "Triton and CuTe DSL kernels need a GPU"
    if case.cols > MAX_COLS:
        return f"Liger takes at most {MAX_COLS} columns"
    if case.norm == "rms":
        return None if case.weight or "residual" not in case.features else "Liger's fused add always has a weight"
    if variant.casting != "llama":
        return "the casting mode concerns RMSNorm alone"
    if not case.weight:
        return "Liger's LayerNorm always has a weight"
    return "Liger's LayerNorm has no offset to the weight" if case.zero_centred else None


def notes(case: NormCase, variant: Dispatch) -> list[str]:
    if case.norm == "layer":
        return [] if case.bias else ["Liger's LayerNorm always has a bias: it is given zeros"]
    traps: list[str] = []
    if "residual" not in case.features:
        traps = ["dx is written over dy, as LigerRMSNorm does by default; dy is restored, untimed, before every call"]
    if variant.casting == "llama" and case.dtype != "fp32" and case.weight:
        traps.append("llama casting rounds xhat and dy * xhat to x's dtype before they are summed to dweight")
    return traps


def prepare(inputs: Inputs, variant: Dispatch) -> Callable[[], Grads]:
    try:
        if "residual" in inputs.case.features:
            forward, gives = behind_residual(partial(_fused_add, inputs.case, variant)), ("dx", None, "dweight")
        else:
            forward, gives = partial(_forward, inputs.case, variant), PLAIN
        backward, function = recorded(inputs, forward, gives)
    except Exception as error:
        if type(error).__name__ == "ImplNotAvailableError":  # what Liger's dispatcher raises
            raise UnsupportedError(str(error)) from error
        raise
    if variant.module not in function:
        raise UnsupportedError(f"Liger hands this shape on to {function}")
    return Chosen(backward, function)


def forward_backward(inputs: Inputs, variant: Dispatch) -> Callable[[], Grads]:
    return forward_and_backward(inputs, partial(_forward, inputs.case, variant))


def _forward(case: NormCase, variant: Dispatch, x: torch.Tensor, weight: Any, bias: Any) -> torch.Tensor:
    """The call that LigerLayerNorm and LigerRMSNorm make, with their defaults, or of the implementation asked for."""
    functional: Any = import_module("liger_kernel.functional")
    if case.norm == "layer":
        return functional.layer_norm(x, weight, bias, case.eps, impl=variant.implementation)
    offset = _offset(case)
    if variant.implementation is None:
        function: Any = import_module("liger_kernel.ops").LigerRMSNormFunction
        return function.apply(x, weight, case.eps, offset, variant.casting, in_place, None)
    options = {"offset": offset, "casting_mode": variant.casting, "in_place": in_place}
    return functional.rms_norm(x, weight, case.eps, **options, impl=variant.implementation)


def _fused_add(case: NormCase, variant: Dispatch, branch: Any, residual: Any, weight: Any, **_bias: None) -> Any:
    """The call that LigerFusedAddRMSNorm makes, with its defaults, or of the implementation asked for."""
    in_place_too = False  # its default, unlike LigerRMSNorm's
    arguments = (branch, residual, weight, case.eps, _offset(case), variant.casting, in_place_too)
    if variant.implementation is None:
        function: Any = import_module("liger_kernel.ops").LigerFusedAddRMSNormFunction
        return function.apply(*arguments)
    functional: Any = import_module("liger_kernel.functional")
    return functional.fused_add_rms_norm(*arguments, impl=variant.implementation)


def _offset(case: NormCase) -> float:
    return 1.0 if case.zero_centred else 0.0
