"""What the in-house kernels are compared with, on a CPU and on a GPU: float64, and how much error is too much."""

import torch

from harness.cases import NormCase, statistics
from harness.cases.tensors import gradients_of
from harness.verify.reference import pieces
from impls import triton_inhouse
from impls.inhouse.backward import backward_with_extras, norm_backward


def cpu_case(norm, rows, cols, **options):
    return NormCase(norm, rows, cols, device="cpu", **options)


def gradients(inputs, **options):
    case = inputs.case
    return norm_backward(
        inputs.dy,
        inputs.x,
        inputs.weight,
        inputs.mean,
        inputs.rstd,
        has_bias=case.bias,
        zero_centred=case.zero_centred,
        **options,
    )


def gradients_with_extras(inputs, **options):
    """All gradients of a case with what is around its norm, by name."""
    case, extras = inputs.case, options.pop("extras", None) or triton_inhouse.extras_of(inputs)
    given = inputs.dy, inputs.x, inputs.weight, inputs.mean, inputs.rstd
    options = {"has_bias": case.bias, "zero_centred": case.zero_centred} | options
    found = backward_with_extras(*given, extras, **options)._asdict()
    return {name: gradient for name, gradient in found.items() if gradient is not None}


def ratios_with_extras(inputs, found):
    """The error of each gradient in units of one rounding; raises AssertionError where one is missing or too many."""
    wanted = {tensor.name: 0 for tensor in gradients_of(inputs.case)}
    for piece in pieces(inputs):
        for name, exact in piece.gradients.items():
            if name in wanted:
                wanted[name] = exact.values
    assert found.keys() == wanted.keys()
    for name, gradient in found.items():
        assert gradient.is_contiguous()
        assert gradient.shape == (inputs.x.shape if name.startswith(("dx", "dz", "dbranch")) else inputs.x.shape[-1:])
    return {name: rho(gradient.reshape(wanted[name].shape), wanted[name]) for name, gradient in found.items()}


def reference(inputs):
    case, dy = inputs.case, inputs.dy.double()
    mean, rstd = statistics(inputs.x, case)
    xhat = (inputs.x.double() - (0 if mean is None else mean[:, None])) * rstd[:, None]
    g = dy if inputs.weight is None else dy * (inputs.weight.double() + int(case.zero_centred))
    dx = g - xhat * (g * xhat).mean(1, keepdim=True)
    if mean is not None:
        dx = dx - g.mean(1, keepdim=True)
    scale = (dy * xhat).abs().sum(0)
    return dx * rstd[:, None], (dy * xhat).sum(0), dy.sum(0), scale


def rms(tensor):
    return tensor.double().square().mean().sqrt().item()


def rho(gradient, expected):
    """The error in units of the one rounding that cannot be avoided."""
    unavoidable = rms(expected.to(gradient.dtype).double() - expected)
    error = rms(gradient.double() - expected)
    return error / unavoidable if unavoidable else 1.0 + error


def check(inputs, **options):
    check_gradients(inputs, gradients(inputs, **options))


def check_gradients(inputs, found):
    dx, dweight, dbias = found
    wanted_dx, wanted_dweight, wanted_dbias, scale = reference(inputs)
    assert (dweight is not None, dbias is not None) == (inputs.case.weight, inputs.case.bias)
    for gradient, wanted, like in (
        (dx, wanted_dx, inputs.x),
        (dweight, wanted_dweight, inputs.weight),
        (dbias, wanted_dbias, inputs.bias),
    ):
        if gradient is None:
            continue
        assert gradient.dtype == like.dtype
        assert gradient.is_contiguous()
        if gradient.dtype == torch.float32:
            bound = wanted.abs().amax() if gradient is dx else scale.amax()
            assert (gradient.double() - wanted).abs().max() <= 16 * 2**-24 * max(1.0, bound)
        else:
            assert rho(gradient, wanted) <= 1.05


def runs_of(launch, monkeypatch):
    """A list to which every launch of this regime is added that runs from now on."""
    ran, calls = [], type(launch).calls
    monkeypatch.setattr(type(launch), "calls", lambda launch, tensors: ran.append(launch) or calls(launch, tensors))
    return ran
