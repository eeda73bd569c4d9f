"""Helion's example kernels of the RMSNorm and LayerNorm backward: by its default configuration, and by its tuner."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from harness.cases import Chosen, Grads, Inputs, NormCase, contiguous_rows

from ..libraries.installed import import_failure
from ..libraries.rows import of_rows

name = "helion"
version = 1
requires = ("helion", "triton")
imports = ("helion",)
install = (
    "pip install helion, and put a checkout of https://github.com/pytorch/helion of that version on PYTHONPATH: "
    "its norms are in examples/"
)
variants = {"helion": "none", "helion-tuned": "full"}  # how much effort its tuner makes
on_request = ("helion-tuned",)  # its search takes minutes a shape
compiles_ahead = ("helion",)

BUDGET_S = 60  # of its search for a shape, in Helions that have such a limit

RMS, LAYER = "examples.rms_norm", "examples.layer_norm"
uses = (RMS, LAYER)


def missing() -> str | None:
    failure = import_failure("helion", RMS) if find_spec("helion") else None
    return f"{failure}; {install}" if failure else None


def unsupported(case: NormCase, _effort: str) -> str | None:
    if case.device == "cpu":
        return "Helion writes Triton kernels for a GPU"
    if not case.weight or case.zero_centred:
        return "Helion's examples always have a weight, and none that is zero-centred"
    if case.rows == 0:
        return "Helion's examples take at least one row"
    return None


def notes(_case: NormCase, effort: str) -> list[str]:
    return ["its default configuration, as with HELION_AUTOTUNE_EFFORT=none"] if effort == "none" else []


def prepare(inputs: Inputs, effort: str) -> Callable[[], Grads]:
    """The forward runs with its default configuration in any case."""
    x, weight, layer = contiguous_rows(inputs.x), inputs.weight, inputs.case.norm == "layer"
    module, norm = (LAYER, "layer_norm") if layer else (RMS, "rms_norm")
    forward, kernel = _kernel(module, f"{norm}_fwd", "none"), _kernel(module, f"{norm}_bwd", effort)
    if layer:
        _, *statistics = forward(x, [inputs.case.cols], weight, inputs.bias, inputs.eps)
        arguments = (x, *statistics, weight, inputs.case.bias)
    else:
        _, rstd = forward(x, weight, inputs.eps)
        arguments = (x, weight, rstd)

    backward = of_rows(inputs, lambda dy: kernel(dy, *arguments))
    backward()  # compiled, and tuned if so asked, by the first call
    if effort == "none":
        return backward
    return Chosen(backward, str(kernel.bind((contiguous_rows(inputs.dy), *arguments)).config))


@lru_cache
def _kernel(module: str, function: str, effort: str) -> Any:
    """A kernel of the examples with a tuner of its own: what one has found for a shape is not the other's."""
    helion: Any = import_module("helion")
    example: Any = getattr(import_module(module), function)
    limit = {"autotune_budget_seconds": BUDGET_S} if hasattr(example.settings, "autotune_budget_seconds") else {}
    return helion.kernel(example.fn, settings=dataclasses.replace(example.settings, autotune_effort=effort, **limit))
