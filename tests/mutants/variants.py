"""Every variant as a model writes its forward, in fp64 through autograd, and faulty backwards of it.

Each fault exchanges one piece of the forward or of what its gradients are; its honest twin is the same code without.
"""

from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from harness.cases import Grads, NormCase, torch_dtype
from harness.cases.tensors import gradients_of
from harness.cases.variants import with_features
from tests.mutants.faults import FAULTS, LAYER, RMS, WRONG, Fault, from_memory

BRANCHES = {"mask": "branch", "mask1": "branch1"}


@dataclass(frozen=True)
class Model:
    """The pieces of a forward that a fault exchanges."""

    silu: object = functional.silu
    keep: object = lambda p: 1 / (1 - p)
    mask: object = lambda mask: mask
    gate_first: object = lambda first: first
    residual: object = lambda dres, dy: dres
    weight1: object = lambda weight, weight1: weight1


def by_autograd(inputs, model=Model()):
    """The gradients of a case by name, in fp64."""
    case = inputs.case
    wide = {
        name: (tensor.reshape(-1, case.cols) if tensor.dim() > 1 else tensor).double()
        for name, tensor in inputs.tensors().items()
    }
    leaves = {name: wide[name] for name in ("x", "weight", "bias", "weight1", "bias1", "z") if name in wide}
    leaves |= {branch: torch.zeros_like(wide["x"]) for mask, branch in BRANCHES.items() if mask in wide}
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in leaves.items()}
    x = leaves["x"]
    for mask, branch in BRANCHES.items():
        if mask in wide:
            x = x + model.mask(wide[mask]) * leaves[branch] * model.keep(case.dropout_p)
    first = model.gate_first(case.gate_first)
    gate = model.silu(leaves["z"]) if "z" in leaves else None
    normed = x * gate if gate is not None and first else x

    def norm(weight, bias):
        if weight is not None:
            weight = weight + float(case.zero_centred)
        if case.norm == "layer":
            return functional.layer_norm(normed, (case.cols,), weight, bias, case.eps)
        return functional.rms_norm(normed, (case.cols,), weight, case.eps)

    y = norm(leaves.get("weight"), leaves.get("bias"))
    outputs, gradients = [y * gate if gate is not None and not first else y], [wide["dy"]]
    if "dy1" in wide:
        weight1 = leaves.get("weight1")
        outputs.append(norm(model.weight1(leaves.get("weight"), weight1), leaves.get("bias1")))
        gradients.append(wide["dy1"])
    if "dres" in wide:
        outputs.append(x)
        gradients.append(model.residual(wide["dres"], wide["dy"]))
    found = torch.autograd.grad(outputs, list(leaves.values()), gradients, allow_unused=True)
    return {
        f"d{name}": torch.zeros_like(leaf) if g is None else g
        for (name, leaf), g in zip(leaves.items(), found, strict=True)
    }


def rounded(inputs, gradients):
    """Gradients rounded once, in the shapes in which a backward returns them."""
    shaped = {}
    for tensor in gradients_of(inputs.case):
        gradient = gradients[tensor.name].to(torch_dtype(tensor.dtype_in(inputs.case)))
        shaped[tensor.name] = gradient.reshape(inputs.x.shape) if tensor.extent == "activation" else gradient
    return Grads.of(shaped)


def honest(inputs):
    """The `prepare` of an implementation of every variant with nothing wrong."""
    return lambda: rounded(inputs, by_autograd(inputs))


def of(case: NormCase, *features, **more):
    """A case with these features."""
    return replace(with_features(case, features), **more)


def exchanged(**piece):
    """A fault that is one piece of the forward."""
    return lambda inputs, planted: lambda: rounded(inputs, by_autograd(inputs, Model(**(piece if planted else {}))))


def spoilt(spoil):
    """A fault that exchanges gradients which are right."""

    def plant(inputs, planted):
        def backward():
            gradients = by_autograd(inputs)
            return rounded(inputs, gradients | (spoil(inputs, gradients) if planted else {}))

        return backward

    return plant


def enter(name, plant, case, reason=WRONG, hidden=False):
    """A fault of a variant."""
    FAULTS[name] = Fault(plant, case, "wrong", reason, hidden)


def kept_with_the_residual(inputs, gradients):
    """What the norm gives is kept in fp16 with the residual's gradient in it, and dz formed from the difference."""
    slope = inputs.z.double().sigmoid() * (1 + inputs.z.double() * (1 - inputs.z.double().sigmoid()))
    rounding = gradients["dx"].half().double() - gradients["dx"]
    return {"dz": gradients["dz"] + rounding * inputs.x.double() * slope}


def naive_silu(z):
    """Both exponentials overflow."""
    grown = z.float().exp()
    return z * (grown / (1 + grown)).double()


@spoilt
def one_row_stride(inputs, gradients):
    """Heads of a projection read as if their tokens lay side by side."""
    flat = inputs.x.as_strided((inputs.case.rows, inputs.case.cols), (inputs.case.cols, 1))
    return by_autograd(replace(inputs, x=from_memory(flat, flat.stride()).reshape(inputs.dy.shape)))


enter("residual forgotten", exchanged(residual=lambda dres, dy: 0 * dres), of(RMS, "residual"), "^dx is off")
enter(
    "residual through the norm", spoilt(lambda i, g: {"dx": g["dx"] - i.dres.double()}), of(LAYER, "residual"), "^dx is"
)
enter(
    "norm's gradient kept with the residual in it",
    spoilt(kept_with_the_residual),
    of(RMS, "residual", "gated", inputs="large-residual"),
    "^dz is off",
    hidden=True,
)
DROPOUT = of(RMS, "residual", "dropout")
enter("scaled by 1 - p", exchanged(keep=lambda p: 1 - p), DROPOUT, "^dbranch is off")
enter("scaled by 1 / p", exchanged(keep=lambda p: 1 / p), DROPOUT, "^dbranch is off")
enter("not scaled", exchanged(keep=lambda p: 1.0), DROPOUT, "^dbranch is off")
enter("dropped elements kept", exchanged(mask=lambda mask: 1 - mask), DROPOUT, "^dbranch is off")
enter(
    "p in bf16",
    exchanged(keep=lambda p: float(1 / (1 - torch.tensor(p).bfloat16()))),
    replace(DROPOUT, dropout_p=0.999),
    "dbranch is off by rho inf",
)
TIED = of(RMS, "residual", "dropout", "parallel-tied")
enter("one mask for both branches", spoilt(lambda i, g: {"dbranch1": g["dbranch"]}), TIED, "^dbranch1 is off")
PARALLEL = of(LAYER, "parallel")
enter("one weight for both norms", exchanged(weight1=lambda weight, weight1: weight), PARALLEL, "dx is off")
enter("parameters of the second norm", spoilt(lambda i, g: {"dweight1": g["dweight"]}), PARALLEL, "^dweight1 is off")
enter("second bias", spoilt(lambda i, g: {"dbias1": g["dbias"]}), PARALLEL, "^dbias1 is off")
for gated, first in (("gated", True), ("gated-norm-first", False)):
    enter(f"{gated} the other way round", exchanged(gate_first=lambda first: not first), of(RMS, gated), "dz is off")
    enter(f"{gated} by a sigmoid", exchanged(silu=torch.sigmoid), of(LAYER, gated), "dz is off")
enter(
    "silu by exponentials that overflow",
    exchanged(silu=naive_silu),
    of(RMS, "gated-norm-first", inputs="large-gates"),
    "off by rho inf",
    hidden=True,
)
enter("heads of a projection side by side", one_row_stride, of(RMS, "qk"), "dx is off")
