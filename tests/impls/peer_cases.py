"""What the adapters are tried on, the exact gradients by arithmetic of its own, and the comparison with them."""

from __future__ import annotations

import dataclasses
from types import ModuleType

import torch

from harness.cases import Grads, Inputs, NormCase, make_inputs, statistics
from harness.cases.adapter import Implementation
from harness.worker.discovery import discover

IMPLS: dict[str, Implementation] = {implementation.name: implementation for implementation in discover()}
LAYER = NormCase("layer", 12, 16, "fp32", "fp32", bias=True)
RMS = NormCase("rms", 12, 16, "fp32", "fp32")
FAST = dataclasses.replace(LAYER, cols=768)


def on_cpu(case: NormCase) -> NormCase:
    return dataclasses.replace(case, device="cpu")


def inputs_of(case: NormCase) -> Inputs:
    """Inputs of a GPU case whose tensors lie on the CPU."""
    return dataclasses.replace(make_inputs(on_cpu(case), seed=0), case=case)


def exact(norm, dy, x, mean, rstd, weight=None, offset=0.0):
    """Fp64 dx, dweight, dbias from the arguments alone."""
    rstd = rstd.reshape(-1, 1).double()
    xhat = (x.double() - (mean.reshape(-1, 1).double() if norm == "layer" else 0)) * rstd
    wdy = dy.double() * (1 if weight is None else weight.double() + offset)
    dx = wdy - xhat * (wdy * xhat).mean(1, keepdim=True)
    if norm == "layer":
        dx = dx - wdy.mean(1, keepdim=True)
    return dx * rstd, (dy.double() * xhat).sum(0), dy.double().sum(0)


def rounded(norm, dy, x, mean, rstd, weight=None, offset=0.0, *, added=None, bias=True):
    """As `exact`: dx with what is added, in x's dtype, and the parameters' gradients in the weight's; None for none."""
    dx, dweight, dbias = exact(norm, dy, x, mean, rstd, weight, offset)
    dx = (dx if added is None else dx + added).to(x.dtype)
    if weight is None:
        return dx, None, None
    return dx, dweight.to(weight.dtype), dbias.to(weight.dtype) if bias else None


def module(name: str, *functions: object, **contents: object) -> ModuleType:
    """A module of functions and classes by their own names, and of other contents."""
    made = ModuleType(name)
    vars(made).update({function.__name__: function for function in functions}, **contents)
    return made


def forward_of(norm, x, eps):
    """What a forward saves: xhat in fp64, mean and rstd."""
    mean = x.double().mean(1) if norm == "layer" else torch.zeros(len(x), dtype=torch.float64)
    rstd = ((x.double() - mean[:, None]).square().mean(1) + eps).rsqrt()
    return ((x.double() - mean[:, None]) * rstd[:, None]), mean.float(), rstd.float()


def check(grads: Grads, inputs: Inputs) -> None:
    case = inputs.case
    mean, rstd = statistics(inputs.x, case)
    dx, dweight, dbias = exact(case.norm, inputs.dy, inputs.x, mean, rstd, inputs.weight, float(case.zero_centred))
    tolerance = {"atol": 1e-4, "rtol": 1e-4} if case.dtype == "fp32" else {"atol": 0.05, "rtol": 0.02}
    for got, want, has in (
        (grads.dx, dx, True),
        (grads.dweight, dweight, case.weight),
        (grads.dbias, dbias, case.bias),
    ):
        assert (got is not None) == has
        if got is not None:
            torch.testing.assert_close(got.double(), want, **tolerance)
