"""A variant by a plain backward, with torch's elementwise operators around it.

That is what the users of a library do that does not have the variant, and what eager torch does. What a forward saves,
such as silu(z) or a copy of heads that lie in a projection, is made untimed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.cases.adapter import Implementation
from harness.cases.case import NormCase
from harness.cases.inputs import Chosen, Grads, Inputs
from harness.cases.tensors import gradients_of, tensors_of
from harness.cases.variants import FEATURES, without

if TYPE_CHECKING:
    import torch

Backward = Callable[[], Grads]
Prepare = Callable[[Inputs], Backward]

WITH_TORCH = " + torch"

# What torch has to do as well where it does the first: it needs the result of that.
FOLLOWS = {
    "residual": ("dropout", "parallel-tied"),
    "parallel": ("dropout", "gated", "gated-norm-first"),
    "gated": ("residual",),
}


def left_to(case: NormCase, handled: Collection[str]) -> NormCase:
    """The case that is left to a backward which handles these features, where torch does the others."""
    done: set[str] = set()
    waiting = [feature for feature in case.features if feature not in handled]
    while waiting:
        feature = waiting.pop()
        done.add(feature)
        waiting += [other for other in FOLLOWS.get(feature, ()) if other in case.features and other not in done]
    return without(case, done)


def prepare(inputs: Inputs, inner: Prepare, handled: Collection[str] = ()) -> Backward:
    """The backward of a variant by `inner`, a backward that handles these features."""
    import torch

    left = left_to(inputs.case, handled)
    does = set(inputs.case.features) - set(left.features)
    given = dict(inputs.tensors())
    if "qk" in does:
        of_rows = [tensor.name for tensor in tensors_of(inputs.case, "input") if tensor.extent == "activation"]
        given |= {name: given[name].reshape(-1, left.cols).contiguous() for name in of_rows}
    plain = given
    before, gate = None, None
    if "gated-norm-first" in does:
        before = _GateBehind.of(given, inputs)
        plain = given | {"dy": before.dnormed}
    elif "gated" in does:
        gate = _GateBefore.of(given)
        plain = given | {"x": gate.gated}
    first = inner(_inputs_of(left, plain, inputs))
    second = inner(_inputs_of(without(left, ["residual"]), _second_norm(plain), inputs)) if "parallel" in does else None
    branches = [
        (given[mask].view(torch.bool), name) for mask, name in _MASKS if mask in given and name not in _names(left)
    ]
    scale = 1 / (1 - inputs.case.dropout_p)

    def backward() -> Grads:
        more = {"dz": before.backward()} if before else {}
        grads = first().tensors()
        if second:
            other = second().tensors()
            grads["dx"] = grads["dx"] + other["dx"]
            more |= {f"{name}1": other[name] for name in ("dweight", "dbias") if name in other}
        if gate:
            grads["dx"], more["dz"] = gate.backward(grads["dx"])
        if "residual" in does:
            grads["dx"] = grads["dx"] + given["dres"]
        for mask, name in branches:
            more[name] = torch.ops.aten.native_dropout_backward.default(grads["dx"], mask, scale)
        return _grads(inputs, grads | more)

    return Chosen(backward, first.what) if isinstance(first, Chosen) else backward


_MASKS = (("mask", "dbranch"), ("mask1", "dbranch1"))


def _names(case: NormCase) -> list[str]:
    return [gradient.name for gradient in gradients_of(case)]


def _inputs_of(case: NormCase, given: Mapping[str, torch.Tensor], inputs: Inputs) -> Inputs:
    """The inputs of a case, of what is given."""
    has = {tensor.name: given[tensor.name] for tensor in tensors_of(case, "input", "statistic")}
    plain: dict[str, Any] = {name: has.pop(name, None) for name in ("x", "weight", "bias", "dy", "mean", "rstd")}
    return Inputs(case=case, eps=inputs.eps, **plain, extra=has)


def _second_norm(given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs of the other one of two parallel norms, under the names of the first."""
    return {**given, **{name.removesuffix("1"): given[name] for name in ("dy1", "weight1", "bias1") if name in given}}


def _grads(inputs: Inputs, by_name: dict[str, torch.Tensor]) -> Grads:
    shaped = {gradient.name for gradient in gradients_of(inputs.case) if gradient.extent == "activation"}
    given = {name: t.reshape(inputs.x.shape) if name in shaped else t for name, t in by_name.items()}
    plain: dict[str, Any] = {name: given.pop(name, None) for name in ("dx", "dweight", "dbias")}
    return Grads(**plain, extra=given)


@dataclass(frozen=True)
class _GateBefore:
    """y = norm(x * silu(z)): `gated` is what is normalised; a forward saves it, x, z and silu(z)."""

    x: torch.Tensor
    z: torch.Tensor
    silu: torch.Tensor
    gated: torch.Tensor

    @classmethod
    def of(cls, given: Mapping[str, torch.Tensor]) -> _GateBefore:
        import torch

        silu = torch.nn.functional.silu(given["z"])
        return cls(given["x"], given["z"], silu, given["x"] * silu)

    def backward(self, dgated: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of x and z."""
        import torch

        return dgated * self.silu, torch.ops.aten.silu_backward.default(dgated * self.x, self.z)


@dataclass(frozen=True)
class _GateBehind:
    """y = norm(x) * silu(z): a forward saves norm(x), z and silu(z); `dnormed` gets the gradient of norm(x)."""

    dy: torch.Tensor
    z: torch.Tensor
    silu: torch.Tensor
    normed: torch.Tensor
    dnormed: torch.Tensor

    @classmethod
    def of(cls, given: Mapping[str, torch.Tensor], inputs: Inputs) -> _GateBehind:
        import torch

        x, z, dy = given["x"], given["z"], given["dy"]
        weight, bias, shape = given.get("weight"), given.get("bias"), (inputs.case.cols,)
        if weight is not None:
            weight = weight.float() + float(inputs.case.zero_centred)
        if inputs.case.norm == "layer":
            normed = torch.nn.functional.layer_norm(
                x.float(), shape, weight, None if bias is None else bias.float(), inputs.eps
            )
        else:
            normed = torch.nn.functional.rms_norm(x.float(), shape, weight, inputs.eps)
        silu = torch.nn.functional.silu(z)
        return cls(dy, z, silu, normed.to(x.dtype), torch.empty(dy.shape, dtype=dy.dtype, device=dy.device))

    def backward(self) -> torch.Tensor:
        """Write the gradient of norm(x), and return dz."""
        import torch

        torch.mul(self.dy, self.silu, out=self.dnormed)
        return torch.ops.aten.silu_backward.default(self.dy * self.normed, self.z)


@dataclass(frozen=True)
class WithTorch(Implementation):
    """An implementation on the variants that it does not handle, as `NAME + torch`."""

    @classmethod
    def beside(cls, item: Implementation) -> WithTorch | None:
        """The implementation of this kind beside one that lacks a variant."""
        if all(set(FEATURES) <= handled for handled in item.handles.values()):
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
        does = [feature for feature in case.features if feature not in left.features]
        return [*super().notes(left), f"torch's elementwise operators do {', '.join(does)}"]

    def prepare(self, inputs: Inputs) -> Backward:
        """Do all that is not the backward; return the backward."""
        return prepare(inputs, super().prepare, self.handles[inputs.case.norm])

    def _optional(self, function: str, case: NormCase) -> Any:
        return super()._optional(function, self._left_of(case))

    def _left_of(self, case: NormCase) -> NormCase:
        return left_to(case, self.handles[case.norm])
