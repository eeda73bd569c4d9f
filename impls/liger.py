"""Liger-Kernel's RMSNorm (llama or gemma casting) and LayerNorm backward, of its own autograd functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from harness.cases import Chosen, Grads, Inputs, NormCase, UnsupportedError

from .libraries import cute_dsl

name = "liger"
requires = ("liger_kernel", "triton")
uses = ("cutlass",)  # which decides what LigerLayerNorm takes
compiles_ahead = ("liger", "liger-gemma", "liger-triton")  # CuTe DSL keeps what it compiled in the process alone
in_place = True  # LigerRMSNorm's default writes dx over dy; LayerNorm leaves dy alone

CUTE_DSL = "nvidia-cutedsl"
MAX_COLS = 65536  # calculate_settings of the Triton kernels refuses more


@dataclass(frozen=True)
class Variant:
    """The casting mode of RMSNorm, and the implementation that Liger's dispatcher is asked for.

    Without one it is what LigerLayerNorm and LigerRMSNorm take by themselves. The backward has to be of a module whose
    name has `module` in it: an implementation that is asked for may hand a shape on to another one.
    """

    casting: str = "llama"
    implementation: str | None = None
    module: str = ""


variants = {
    "liger": Variant(),
    "liger-gemma": Variant("gemma"),
    "liger-triton": Variant(implementation="nvidia-triton"),
    "liger-cutedsl": Variant(implementation=CUTE_DSL, module="cutedsl"),
}


def missing(variant: Variant) -> str | None:
    return cute_dsl.missing() if variant.implementation == CUTE_DSL and find_spec("liger_kernel") else None


def unsupported(case: NormCase, variant: Variant) -> str | None:
    if case.device == "cpu":
        return "Triton and CuTe DSL kernels need a GPU"
    if case.cols > MAX_COLS:
        return f"Liger takes at most {MAX_COLS} columns"
    if case.norm == "rms":
        return None
    if variant.casting != "llama":
        return "the casting mode concerns RMSNorm alone"
    if not case.weight:
        return "Liger's LayerNorm always has a weight"
    return "Liger's LayerNorm has no offset to the weight" if case.zero_centred else None


def notes(case: NormCase, variant: Variant) -> list[str]:
    if case.norm == "layer":
        return [] if case.bias else ["Liger's LayerNorm always has a bias: it is given zeros"]
    traps = ["dx is written over dy, as LigerRMSNorm does by default; dy is restored, untimed, before every call"]
    if variant.casting == "llama" and case.dtype != "fp32" and case.weight:
        traps.append("llama casting rounds xhat and dy * xhat to x's dtype before they are summed to dweight")
    return traps


def prepare(inputs: Inputs, variant: Variant) -> Callable[[], Grads]:
    """Run the forward under autograd, and return the backward of the function that it recorded."""
    import torch

    case, dy = inputs.case, inputs.dy
    leaves = [
        None if leaf is None else leaf.detach().requires_grad_() for leaf in (inputs.x, inputs.weight, inputs.bias)
    ]
    with torch.enable_grad():
        y = _forward(case, leaves, variant)
    node = y.grad_fn
    recorded = type(node)._forward_cls
    if variant.module not in recorded.__module__:
        raise UnsupportedError(f"Liger hands this shape on to {recorded.__module__}")

    @torch.no_grad()  # as the engine of autograd calls it
    def backward() -> Grads:
        dx, *parameters = y.grad_fn.apply(dy)  # what the forward saved lives as long as y
        dweight, dbias = parameters[0], parameters[1] if case.bias else None
        return Grads(dx, dweight, dbias)

    return Chosen(backward, f"{recorded.__module__}.{recorded.__name__}")


def _forward(case: NormCase, leaves: list[Any], variant: Variant) -> Any:
    """The result of the call that LigerLayerNorm and LigerRMSNorm make, with their defaults."""
    x, weight, bias = leaves
    offset = 1.0 if case.zero_centred else 0.0
    functional: Any = import_module("liger_kernel.functional")
    try:
        if case.norm == "layer":
            return functional.layer_norm(x, weight, bias, case.eps, impl=variant.implementation)
        if variant.implementation is None:
            function: Any = import_module("liger_kernel.ops").LigerRMSNormFunction
            return function.apply(x, weight, case.eps, offset, variant.casting, in_place, None)
        return functional.rms_norm(
            x,
            weight,
            case.eps,
            offset=offset,
            casting_mode=variant.casting,
            in_place=in_place,
            impl=variant.implementation,
        )
    except Exception as error:
        if type(error).__name__ == "ImplNotAvailableError":
            raise UnsupportedError(str(error)) from error
        raise
