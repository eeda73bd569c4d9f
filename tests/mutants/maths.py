"""An honest norm backward in any precision, and adapters in memory built from it: the ground that faults stand on."""

from contextlib import suppress
from types import SimpleNamespace

import torch

from harness.cases import Grads, torch_dtype
from harness.cases.adapter import Implementation
from harness.worker.messages import Try
from harness.worker.rows import SpoiltError
from harness.worker.trial import Trial


def gradients(inputs, compute=torch.float64, wide=False, correction=True, rows=None):
    """The gradients computed in `compute` and rounded once, or left in fp32 where `wide`; of the first `rows` rows."""
    case = inputs.case
    x, dy = (tensor.reshape(-1, case.cols)[:rows].to(compute) for tensor in (inputs.x, inputs.dy))
    weight = torch.ones((), dtype=compute)
    if inputs.weight is not None:
        weight = inputs.weight.to(compute) + case.zero_centred
    if case.norm == "layer":
        x = x - x.mean(1, keepdim=True)
    rstd = (x.square().mean(1, keepdim=True) + inputs.eps).rsqrt()
    xhat, wdy = x * rstd, dy * weight
    dx = wdy
    if correction:
        dx = dx - xhat * (wdy * xhat).mean(1, keepdim=True)
    if case.norm == "layer":
        dx = dx - wdy.mean(1, keepdim=True)
    dtype, weight_dtype = torch_dtype(case.dtype), torch_dtype(case.weight_dtype)
    if wide:
        dtype = weight_dtype = torch.float32
    return Grads(
        (dx * rstd).to(dtype) if rows is not None else (dx * rstd).to(dtype).reshape(inputs.x.shape),
        (dy * xhat).sum(0).to(weight_dtype) if case.weight else None,
        dy.sum(0).to(weight_dtype) if case.bias else None,
    )


def honest(inputs):
    """The `prepare` of an implementation with nothing wrong."""
    return lambda: gradients(inputs)


def implementation(name, prepare=honest, **more):
    """An adapter in memory; `more` are its optional names."""
    adapter = {"name": name, "requires": (), "unsupported": lambda case: None, "prepare": prepare} | more
    return Implementation(name, name, "a test", SimpleNamespace(**adapter))


def tried(fault, planted, settings, case=None, **more):
    """The row of a faulty backward, or of its honest twin; studied unless its inputs are unusual or many.

    `more` is what its adapter declares.
    """
    case = case or fault.case
    more = {"handles": set(case.features)} | more
    adapter = implementation("mutant", lambda inputs: fault.plant(inputs, planted), **more)
    rows = []
    studied = case.inputs == "normal" and case.rows * case.cols < 1 << 28
    request = Try(case, ("mutant",), "g", settings, studied=studied)
    with suppress(SpoiltError):  # its row is written
        Trial(request, {"mutant": adapter}, lambda *_: None, rows.append).run()
    (row,) = rows
    return row
