"""torch.compile of a norm and what is around it: the backward that Inductor writes, reached through autograd."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.cases import Chosen, Grads, Inputs, NormCase
from harness.cases.variants import FEATURES

from .libraries.inductor import compile_alone, tuned_kernels
from .libraries.recorded import forward_and_backward

if TYPE_CHECKING:
    import torch

name = "torch-compiled"
version = 1
requires = ("torch",)
imports = ("torch._inductor.compile_fx",)
handles = frozenset(FEATURES)
via: Literal["kernel", "autograd"] = "autograd"


KEPT = 64  # compiled forwards, so that other inputs of a case find theirs


@dataclass(frozen=True)
class Compilation:
    """How Inductor is asked to compile; `mode` and options exclude each other, so settings are patched in."""

    mode: str | None = None
    settings: dict[str, bool] = field(default_factory=dict[str, bool], hash=False)  # of torch._inductor.config


variants = {
    "torch-compiled": Compilation(),
    "torch-compiled-autotune": Compilation(mode="max-autotune-no-cudagraphs"),
    "torch-compiled-unmixed": Compilation(settings={"triton.mix_order_reduction": False}),
    "torch-compiled-nonstrict": Compilation(settings={"triton.mix_order_reduction_non_strict_mode": True}),
}
compiles_ahead = True


def unsupported(case: NormCase, variant: Compilation) -> str | None:
    if case.device == "cpu" and variant != Compilation():
        return "this variant changes the Triton that Inductor writes, and a CPU runs C++"
    for setting in variant.settings:
        if not _known(setting):
            return f"this torch has no torch._inductor.config.{setting}"
    return None


def notes(case: NormCase, _variant: Compilation) -> list[str]:
    return ["compiled with 1 + weight as the weight"] if case.zero_centred else []


def prepare(inputs: Inputs, variant: Compilation) -> Callable[[], Grads]:
    import torch
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch.autograd.graph import get_gradient_edge

    compiled = _compiled(_layout_alone(inputs.case), inputs.x.shape, inputs.x.stride(), variant)
    given = inputs.tensors()
    leaves = {name: given[name] for name in ("x", "weight", "bias", "weight1", "bias1", "z") if name in given}
    constants = {name: given[name] for name in ("mask", "mask1") if name in given}
    leaves |= {name.replace("mask", "branch"): torch.zeros_like(inputs.x) for name in constants}
    if "frozen" in inputs.case.features:
        constants |= {name: leaves.pop(name) for name in ("weight", "bias", "weight1", "bias1") if name in leaves}
    leaves = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
    nothing = torch.zeros((), dtype=inputs.x.dtype, device=inputs.x.device)
    upstream = [given[name] for name in ("dy", "dy1", "dres") if name in given]
    # Donated buffers are reused by the backward, which could then run only once.
    with functorch_config.patch(donated_buffer=False), inductor_config.patch(variant.settings):
        outputs = [get_gradient_edge(y) for y in compiled.forward(**leaves, **constants, nothing=nothing)]  # y goes

        def backward() -> Grads:
            gradients = torch.autograd.grad(outputs, list(leaves.values()), upstream, retain_graph=True)
            by_name = {f"d{name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
            plain = {name: by_name.pop(name, None) for name in ("dweight", "dbias")}
            return Grads(by_name.pop("dx"), **plain, extra=by_name)

        tuned = tuned_kernels() if variant.mode else {}
        backward()  # compiled by its first call: that has to happen while the settings above hold
    if variant.mode is None:
        return backward
    compiled.kernels.update((name, config) for name, config in tuned_kernels().items() if name not in tuned)
    return Chosen(backward, "; ".join(f"{name.rpartition('.')[2]}: {item}" for name, item in compiled.kernels.items()))


def forward_backward(inputs: Inputs, variant: Compilation) -> Callable[[], Grads]:
    import torch

    case = _layout_alone(inputs.case)
    compiled = _compiled(case, inputs.x.shape, inputs.x.stride(), variant)
    nothing = torch.zeros((), dtype=inputs.x.dtype, device=inputs.x.device)
    return forward_and_backward(inputs, lambda **leaves: compiled.forward(**leaves, nothing=nothing)[0])


@dataclass(frozen=True)
class _Compiled:
    """A compiled forward, and with which launch configuration each kernel of its backward runs, once it has run."""

    forward: Callable[..., list[torch.Tensor]]
    kernels: dict[str, str] = field(default_factory=dict[str, str])


@lru_cache(maxsize=KEPT)
def _compiled(case: NormCase, _shape: object, _stride: object, variant: Compilation) -> _Compiled:
    """The forward of a case, compiled once for all inputs of one shape and layout."""
    return _Compiled(compile_alone(_forward(case), variant.mode))


def _layout_alone(case: NormCase) -> NormCase:
    """The case without the kind of its numbers, which are nothing to the compiler."""
    return replace(case, inputs="normal")


def _forward(case: NormCase) -> Callable[..., list[torch.Tensor]]:
    """A variant as a model writes it; its outputs are y, of parallel norms both, and the residual that goes on."""
    import torch.nn.functional as F  # noqa: N812  # the name that the field knows it by

    shape, eps, offset = (case.cols,), case.eps, 1 if case.zero_centred else 0
    has, scale = set(case.features), 1 / (1 - case.dropout_p)

    def norm(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        if offset and weight is not None:
            weight = weight + offset
        if case.norm == "rms":
            y = F.rms_norm(x, shape, weight, eps)
        else:  # of two dtypes torch 2.15 compiles none; the arithmetic is fp32 in any case
            y = F.layer_norm(x if weight is None else x.to(weight.dtype), shape, weight, bias, eps)
        return y.to(x.dtype)  # an fp32 weight must not widen y, whose dtype is dy's

    def forward(
        x: torch.Tensor,
        nothing: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        weight1: torch.Tensor | None = None,
        bias1: torch.Tensor | None = None,
        z: torch.Tensor | None = None,
        branch: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        branch1: torch.Tensor | None = None,
        mask1: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        if "residual" in has:
            x = x + nothing  # a sum with a branch, as in a model: what goes on is not the input itself
        if branch is not None and mask is not None:
            x = x + branch * mask * scale
        if branch1 is not None and mask1 is not None:
            x = x + branch1 * mask1 * scale
        gate = None if z is None else F.silu(z)
        normalised = x * gate if gate is not None and case.gate_first else x
        y = norm(normalised, weight, bias)
        outputs = [y if gate is None or case.gate_first else y * gate]
        if "parallel" in has:
            outputs.append(norm(normalised, weight1, bias1))
        return [*outputs, x] if "residual" in has else outputs

    return forward


def _known(setting: str) -> bool:
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return True  # no torch: `requires` says so
    group, _, key = setting.partition(".")
    return key in _settings(Path(spec.origin).with_name("_inductor") / "config.py").get(group, ())


@lru_cache(1)
def _settings(config: Path) -> dict[str, set[str]]:
    """The settings of each group of Inductor's, read from its source: to import it takes eight seconds."""
    groups = (group for group in ast.parse(config.read_text(encoding="utf-8")).body if isinstance(group, ast.ClassDef))
    return {group.name: {each.id for each in ast.walk(group) if isinstance(each, ast.Name)} for group in groups}
