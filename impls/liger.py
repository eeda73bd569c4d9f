"""Liger-Kernel's Triton RMSNorm (llama or gemma casting) and LayerNorm backward, called directly."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import Grads, Inputs, NormCase

name = "liger"
requires = ("liger_kernel", "triton")
variants = {"liger": "llama", "liger-gemma": "gemma"}  # the casting mode of RMSNorm
compiles_ahead = True
in_place = True  # LigerRMSNorm's default writes dx over dy; LayerNorm leaves dy alone

MAX_COLS = 65536  # calculate_settings refuses more


def unsupported(case: NormCase, casting: str) -> str | None:
    if case.device == "cpu":
        return "Triton kernels need a GPU"
    if case.cols > MAX_COLS:
        return f"Liger takes at most {MAX_COLS} columns"
    if case.norm == "rms":
        return None
    if casting != "llama":
        return "the casting mode concerns RMSNorm alone"
    if not case.weight:
        return "Liger's LayerNorm always has a weight"
    return "Liger's LayerNorm has no offset to the weight" if case.zero_centred else None


def notes(case: NormCase, casting: str) -> list[str]:
    if case.norm == "layer":
        return [] if case.bias else ["Liger's LayerNorm always has a bias: it is given zeros, and computes no dbias"]
    traps = ["dx is written over dy, as LigerRMSNorm does by default; dy is restored, untimed, before every call"]
    if casting == "llama" and case.dtype != "fp32" and case.weight:
        traps.append("llama casting rounds xhat and dy * xhat to x's dtype before they are summed to dweight")
    return traps


# Liger's autograd functions make whatever they are given contiguous, forward and backward, before they call these.
def prepare(inputs: Inputs, casting: str) -> Callable[[], Grads]:
    return _layer(inputs) if inputs.case.norm == "layer" else _rms(inputs, casting)


def _rms(inputs: Inputs, casting: str) -> Callable[[], Grads]:
    ops: Any = import_module("liger_kernel.ops.rms_norm")
    offset = 1.0 if inputs.case.zero_centred else 0.0
    row_mode = None  # LigerRMSNorm's default
    _, x, rstd, block_size, num_warps, mode = ops.rms_norm_forward(
        inputs.x.contiguous(), inputs.weight, inputs.eps, offset, casting, row_mode
    )
    settings = (offset, mode, block_size, num_warps, in_place, row_mode)
    return lambda: Grads(*ops.rms_norm_backward(inputs.dy.contiguous(), x, inputs.weight, rstd, *settings))


def _layer(inputs: Inputs) -> Callable[[], Grads]:
    import torch

    ops: Any = import_module("liger_kernel.ops.layer_norm")
    weight, bias, has_bias = inputs.weight, inputs.bias, inputs.bias is not None
    if weight is not None and bias is None:
        bias = torch.zeros_like(weight)
    _, x, mean, rstd, *_ = ops.layer_norm_forward(inputs.x.contiguous(), weight, bias, inputs.eps)
    return lambda: Grads(*ops.layer_norm_backward(inputs.dy.contiguous(), x, weight, bias, mean, rstd, True, has_bias))
