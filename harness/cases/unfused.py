"""A variant by a plain backward, with torch's elementwise operators around it.

That is what the users of a library do that does not have the variant, and what eager torch does. What a forward saves,
such as silu(z) or a copy of heads that lie in a projection, is made untimed. A norm without a weight is handed ones,
whose gradients are dropped, and one that multiplies by 1 + weight is handed that sum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.cases.adapter import Implementation
from harness.cases.case import NormCase, torch_dtype
from harness.cases.inputs import Chosen, Grads, Inputs
from harness.cases.tensors import gradients_of, tensors_of
from harness.cases.variants import FEATURES, needs, probes, with_weight, without

if TYPE_CHECKING:
    import torch

Backward = Callable[[], Grads]
Prepare = Callable[[Inputs], Backward]
GateBackward = Callable[["torch.Tensor"], tuple["torch.Tensor", "torch.Tensor"]]

WITH_TORCH = " + torch"

# What torch has to do as well where it does the first: it needs the result of that.
FOLLOWS = {
    "residual": ("dropout", "parallel-tied"),
    "parallel": ("dropout", "gated", "gated-norm-first"),
    "gated": ("residual",),
}


def left_to(case: NormCase, handled: Collection[str]) -> NormCase:
    """The case that is left to a backward which handles these of `variants.needs`; torch does the others."""
    done: set[str] = set()
    waiting = [feature for feature in case.features if feature not in handled]
    while waiting:
        feature = waiting.pop()
        done.add(feature)
        waiting += [other for other in FOLLOWS.get(feature, ()) if other in case.features and other not in done]
    left = without(case, done)
    return left if needs(left) <= {*left.features, *handled} else with_weight(left)


def prepare(inputs: Inputs, inner: Prepare, handled: Collection[str] = ()) -> Backward:
    """The backward of a variant by `inner`, a backward that handles these of `variants.needs`."""
    return prepare_around(inputs, inner, left_to(inputs.case, handled))


def prepare_around(inputs: Inputs, inner: Prepare, left: NormCase) -> Backward:
    """The backward of a variant by `inner`, a backward of the case that is left to it."""
    import torch

    does = set(inputs.case.features) - set(left.features)
    tensors = dict(inputs.tensors())
    if "qk" in does:
        of_rows = [tensor.name for tensor in tensors_of(inputs.case, "input") if tensor.extent == "activation"]
        tensors |= {name: tensors[name].reshape(-1, left.cols).contiguous() for name in of_rows}
    plain = tensors
    before, gate = None, None
    if "gated-norm-first" in does:
        dnormed, before = _gate_behind(tensors, inputs)
        plain = tensors | {"dy": dnormed}
    elif "gated" in does:
        gated, gate = _gate_before(tensors)
        plain = tensors | {"x": gated}
    if (left.weight, left.zero_centred) != (inputs.case.weight, inputs.case.zero_centred):
        plain = plain | _handed_weights(plain, inputs.case, left)
    first = inner(_inputs_of(left, plain, inputs))
    second = inner(_inputs_of(without(left, ["residual"]), _second_norm(plain), inputs)) if "parallel" in does else None
    branches = [
        (tensors[mask].view(torch.bool), name) for mask, name in _MASKS if mask in tensors and name not in _names(left)
    ]
    scale = 1 / (1 - inputs.case.dropout_p)

    def backward() -> Grads:
        more = {"dz": before()} if before else {}
        grads = first().tensors()
        if second:
            other = second().tensors()
            grads["dx"] = grads["dx"] + other["dx"]
            more |= {f"{name}1": other[name] for name in ("dweight", "dbias") if name in other}
        if gate:
            grads["dx"], more["dz"] = gate(grads["dx"])
        if "residual" in does:
            grads["dx"] = grads["dx"] + tensors["dres"]
        for mask, name in branches:
            more[name] = torch.ops.aten.native_dropout_backward.default(grads["dx"], mask, scale)
        return _grads(inputs, grads | more)

    return Chosen(backward, first.what) if isinstance(first, Chosen) else backward


def _handed_weights(tensors: Mapping[str, torch.Tensor], case: NormCase, left: NormCase) -> dict[str, torch.Tensor]:
    """The weights of a backward that has to be given one, or that multiplies by what it is given."""
    import torch

    dtype = torch_dtype(left.weight_dtype)
    if not case.weight:
        ones = torch.ones(case.cols, dtype=dtype, device=tensors["x"].device)
        names = [tensor.name for tensor in tensors_of(left, "input") if tensor.extent == "per column"]
        return {name: ones if name.startswith("weight") else torch.zeros_like(ones) for name in names}
    return {name: (tensors[name].float() + 1).to(dtype) for name in ("weight", "weight1") if name in tensors}


_MASKS = (("mask", "dbranch"), ("mask1", "dbranch1"))


def _names(case: NormCase) -> list[str]:
    return [gradient.name for gradient in gradients_of(case)]


def _inputs_of(case: NormCase, tensors: Mapping[str, torch.Tensor], inputs: Inputs) -> Inputs:
    """The inputs of a case, from these tensors."""
    has = {tensor.name: tensors[tensor.name] for tensor in tensors_of(case, "input", "statistic")}
    return Inputs.of(has, case=case, eps=inputs.eps)


def _second_norm(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs of the other one of two parallel norms, under the names of the first."""
    second = {name.removesuffix("1"): tensors[name] for name in ("dy1", "weight1", "bias1") if name in tensors}
    return {**tensors, **second}


def _grads(inputs: Inputs, by_name: dict[str, torch.Tensor]) -> Grads:
    shapes = {each.name: inputs.x.shape for each in gradients_of(inputs.case) if each.extent == "activation"}
    wanted = {name: by_name[name] for name in _names(inputs.case) if name in by_name}
    return Grads.of({name: each.reshape(shapes.get(name, each.shape)) for name, each in wanted.items()})


def _gate_before(given: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, GateBackward]:
    """Y = norm(x * silu(z)): what is normalised, and how its gradient becomes those of x and z.

    A forward saves that product, x, z and silu(z).
    """
    import torch

    x, z, silu = given["x"], given["z"], torch.nn.functional.silu(given["z"])
    return x * silu, lambda d: (d * silu, torch.ops.aten.silu_backward.default(d * x, z))


def _gate_behind(given: Mapping[str, torch.Tensor], inputs: Inputs) -> tuple[torch.Tensor, Callable[[], torch.Tensor]]:
    """Y = norm(x) * silu(z): where the gradient of norm(x) is written to, and the call that writes it and gives dz.

    A forward saves norm(x), z and silu(z).
    """
    import torch

    x, z, dy = given["x"], given["z"], given["dy"]
    weight, bias, shape = given.get("weight"), given.get("bias"), (inputs.case.cols,)
    if weight is not None:
        weight = weight.float() + float(inputs.case.zero_centred)
    if inputs.case.norm == "layer":
        bias = None if bias is None else bias.float()
        normed = torch.nn.functional.layer_norm(x.float(), shape, weight, bias, inputs.eps)
    else:
        normed = torch.nn.functional.rms_norm(x.float(), shape, weight, inputs.eps)
    normed, silu = normed.to(x.dtype), torch.nn.functional.silu(z)
    dnormed = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)

    def backward() -> torch.Tensor:
        torch.mul(dy, silu, out=dnormed)
        return torch.ops.aten.silu_backward.default(dy * normed, z)

    return dnormed, backward


@dataclass(frozen=True)
class WithTorch(Implementation):
    """An implementation on the variants that it does not handle, as `NAME + torch`."""

    @classmethod
    def completing(cls, item: Implementation) -> WithTorch | None:
        """The implementation that completes one which lacks a variant; None for one that has them all."""
        if all(needs(case) <= item.meets(norm) for norm in item.handles for case in probes(norm, FEATURES)):
            return None
        return cls(item.name + WITH_TORCH, item.family, item.source, item.module, item.arguments)

    @property
    def variant(self) -> str:
        """The name in the adapter."""
        return self.name.removesuffix(WITH_TORCH)

    @property
    def on_request(self) -> bool:
        """It is chosen with the implementation that it stands beside, where a case asks for it."""
        return True

    def unsupported(self, case: NormCase) -> str | None:
        """Say why what is left of this case cannot run, or None."""
        left = self._left_of(case)
        if left == case:
            return f"nothing is left to torch: {self.variant} has all of this case"
        return super().unsupported(left)

    def notes(self, case: NormCase) -> list[str]:
        """Those of what is left, and what torch does."""
        left = self._left_of(case)
        does = [feature for feature in case.features if feature not in (*left.features, "frozen")]
        notes = [*super().notes(left), *([f"torch's elementwise operators do {', '.join(does)}"] if does else [])]
        if "frozen" in case.features and "frozen" not in left.features:
            notes.append("computes the gradients of parameters too, which are dropped")
        if left.weight != case.weight:
            notes.append("is handed a weight of ones, whose gradient is dropped")
        if left.zero_centred != case.zero_centred:
            rounded = "" if left.weight_dtype == "fp32" else f", rounded to {left.weight_dtype}"
            notes.append(f"is handed 1 + weight as its weight{rounded} (untimed)")
        return notes

    def prepare(self, inputs: Inputs) -> Backward:
        """Do all that is not the backward; return the backward."""
        return prepare_around(inputs, super().prepare, self._left_of(inputs.case))

    def _optional(self, function: str, case: NormCase) -> Any:
        return super()._optional(function, self._left_of(case))

    def _left_of(self, case: NormCase) -> NormCase:
        """What is left; a sum of 1 and a weight stays in fp32 where the implementation takes such a weight."""
        left = left_to(case, self.meets(case.norm))
        if left.zero_centred == case.zero_centred:
            return left
        exact = replace(left, weight_dtype="fp32")
        return left if self._refuses(exact) else exact
