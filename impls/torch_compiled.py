"""torch.compile of F.layer_norm and F.rms_norm: the backward that Inductor writes, reached through autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from harness.cases import Chosen, Grads, Inputs, NormCase

from .libraries.inductor import compile_alone, tuned_kernels

if TYPE_CHECKING:
    import torch

name = "torch-compiled"
requires = ("torch",)
via: Literal["kernel", "autograd"] = "autograd"


KEPT = 64  # compiled forwards, so that other inputs of a case find theirs


@dataclass(frozen=True)
class Variant:
    """How Inductor is asked to compile; `mode` and options exclude each other, so settings are patched in."""

    mode: str | None = None
    settings: dict[str, bool] = field(default_factory=dict[str, bool], hash=False)  # of torch._inductor.config


variants = {
    "torch-compiled": Variant(),
    "torch-compiled-autotune": Variant(mode="max-autotune-no-cudagraphs"),
    "torch-compiled-unmixed": Variant(settings={"triton.mix_order_reduction": False}),
    "torch-compiled-nonstrict": Variant(settings={"triton.mix_order_reduction_non_strict_mode": True}),
}
compiles_ahead = True


def unsupported(case: NormCase, variant: Variant) -> str | None:
    if case.device == "cpu" and variant != Variant():
        return "this variant changes the Triton that Inductor writes, and a CPU runs C++"
    for setting in variant.settings:
        if not _known(setting):
            return f"this torch has no torch._inductor.config.{setting}"
    return None


def notes(case: NormCase, _variant: Variant) -> list[str]:
    return ["compiled with 1 + weight as the weight"] if case.zero_centred else []


def prepare(inputs: Inputs, variant: Variant) -> Callable[[], Grads]:
    import torch
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    compiled = _compiled(_layout_alone(inputs.case), inputs.x.shape, inputs.x.stride(), variant)
    x = inputs.x.detach().requires_grad_()
    weight = inputs.weight.detach().requires_grad_() if inputs.weight is not None else None
    bias = inputs.bias.detach().requires_grad_() if inputs.bias is not None else None
    leaves = [leaf for leaf in (x, weight, bias) if leaf is not None]
    # Donated buffers are reused by the backward, which could then run only once.
    with functorch_config.patch(donated_buffer=False), inductor_config.patch(variant.settings):
        y = compiled.forward(x, weight, bias)

        def backward() -> Grads:
            dx, *parameters = torch.autograd.grad(y, leaves, inputs.dy, retain_graph=True)
            dweight, dbias = [*parameters, None, None][:2]
            return Grads(dx, dweight, dbias)

        tuned = tuned_kernels() if variant.mode else {}
        backward()  # compiled by its first call: that has to happen while the settings above hold
    if variant.mode is None:
        return backward
    compiled.kernels.update((name, config) for name, config in tuned_kernels().items() if name not in tuned)
    return Chosen(backward, "; ".join(f"{name.rpartition('.')[2]}: {item}" for name, item in compiled.kernels.items()))


@dataclass(frozen=True)
class _Compiled:
    """A compiled forward, and with which launch configuration each kernel of its backward runs, once it has run."""

    forward: Callable[..., torch.Tensor]
    kernels: dict[str, str] = field(default_factory=dict[str, str])


@lru_cache(maxsize=KEPT)
def _compiled(case: NormCase, _shape: object, _stride: object, variant: Variant) -> _Compiled:
    """The forward of a case, compiled once for all inputs of one shape and layout."""
    return _Compiled(compile_alone(_forward(case), variant.mode))


def _layout_alone(case: NormCase) -> NormCase:
    """The case without the kind of its numbers, which are nothing to the compiler."""
    return replace(case, inputs="normal")


def _forward(case: NormCase) -> Callable[..., torch.Tensor]:
    import torch.nn.functional as F  # noqa: N812  # the name that the field knows it by

    shape, eps, offset = (case.cols,), case.eps, 1 if case.zero_centred else 0

    def forward(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        if offset and weight is not None:
            weight = weight + offset
        y = F.layer_norm(x, shape, weight, bias, eps) if case.norm == "layer" else F.rms_norm(x, shape, weight, eps)
        return y.to(x.dtype)  # an fp32 weight must not widen y, whose dtype is dy's

    return forward


def _known(setting: str) -> bool:
    try:
        import torch._inductor.config as inductor_config
    except ImportError:
        return True  # no torch: `requires` says so
    group, _, key = setting.partition(".")
    return hasattr(getattr(inductor_config, group, None), key)
