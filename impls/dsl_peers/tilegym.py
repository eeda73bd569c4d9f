"""TileGym's cuTile RMSNorm, with residual, and LayerNorm backward, of its own autograd functions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from harness.cases import Chosen, Grads, Inputs, NormCase

from ..libraries.installed import import_failure
from ..libraries.recorded import behind_residual, recorded

name = "tilegym"
version = 1
requires = ("tilegym", "cuda.tile")
install = "pip install 'cuda-tile[tileiras]' && pip install --no-deps tilegym"
handles = {"rms": {"residual"}}

in_place = True  # the default of the suite's rms_norm writes dx over dy; the others leave dy alone

RMS, SUITE = "tilegym.ops.cutile.rms_norm", "tilegym.suites.liger.cutile"
WIDEST = 65536  # columns: calculate_settings of its suite refuses more


def missing() -> str | None:
    return import_failure("tilegym", RMS) or (_cannot_compile() if find_spec("tilegym") else None)


def _cannot_compile() -> str | None:
    """Why cuTile cannot compile an empty kernel for the GPU that is here, or None.

    Its compiler `tileiras` knows some architectures only, and runs libnvvm and ptxas, which are packages of their own.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    tile: Any = import_module("cuda.tile")
    compilation: Any = import_module("cuda.tile.compilation")
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability())

    @tile.kernel
    def nothing() -> None:
        pass

    signature = compilation.KernelSignature([], compilation.CallingConvention.cutile_python_v1())
    try:
        compilation.export_kernel(nothing, [signature], BytesIO(), gpu_code=architecture, output_format="cubin")
    except Exception as error:
        why = " ".join(str(error).split())
        return f"cuTile cannot compile for {architecture} here ({type(error).__name__}: {why[:200]}); {install}"
    return None


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "cuTile kernels need an NVIDIA GPU"
    if not case.weight and (case.norm == "layer" or case.features):
        return "TileGym's LayerNorm and its fused add always have a weight"
    if case.zero_centred and case.norm == "layer":
        return "TileGym's LayerNorm has no offset to the weight"
    if case.rows == 0:
        return "TileGym takes at least one row"
    if case.cols > WIDEST:
        return f"TileGym takes at most {WIDEST} columns"
    return None


def notes(case: NormCase) -> list[str]:
    if case.norm == "layer":
        return [] if case.bias else ["TileGym's LayerNorm always has a bias: it is given zeros"]
    traps: list[str] = []
    if _of_suite(case):
        traps = ["dx is written over dy, as by default; dy is restored, untimed, before every call"]
    if case.weight and case.dtype != "fp32" and (case.features or _of_suite(case)):
        traps.append("llama casting rounds xhat and dy * xhat to x's dtype before they are summed to dweight")
    return traps


def _of_suite(case: NormCase) -> bool:
    """Whether the RMSNorm is that of its Liger suite: its own has no backward with an offset, and always a weight."""
    return case.norm == "rms" and not case.features and (case.zero_centred or not case.weight)


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    if inputs.case.norm == "layer":
        backward, _ = recorded(inputs, _layer(inputs))
    elif "residual" in inputs.case.features:
        return _fused_add(inputs)
    elif _of_suite(inputs.case):
        backward, _ = recorded(inputs, _suites_rms(inputs))
    else:
        backward, _ = recorded(inputs, _rms(inputs), ("dx", None, "dweight"))
    backward()  # compiled by the first call
    return backward


def _rms(inputs: Inputs) -> Callable[..., Any]:
    ops: Any = import_module(RMS)
    return lambda x, weight, **_bias: ops.rms_norm(x, (inputs.case.cols,), weight, inputs.eps)


def _suites_rms(inputs: Inputs) -> Callable[..., Any]:
    ops: Any = import_module(f"{SUITE}.rms_norm")
    offset = 1.0 if inputs.case.zero_centred else 0.0
    return lambda x, weight, **_bias: ops.rms_norm(x, weight, inputs.eps, offset)


def _layer(inputs: Inputs) -> Callable[..., Any]:
    import torch

    ops: Any = import_module(f"{SUITE}.layer_norm")

    def norm(x: Any, weight: Any, bias: Any) -> Any:
        return ops.layer_norm(x, weight, torch.zeros_like(weight) if bias is None else bias, inputs.eps)

    return norm


def _fused_add(inputs: Inputs) -> Callable[[], Grads]:
    """It tunes how many programs a multiprocessor gets, and would take what it found for another number of rows."""
    ops: Any = import_module(f"{SUITE}.fused_add_rms_norm")
    offset, tuned = 1.0 if inputs.case.zero_centred else 0.0, ops._bwd_tune_cache
    tuned.clear()

    def add(branch: Any, residual: Any, weight: Any, **_bias: None) -> Any:
        return ops.fused_add_rms_norm(branch, residual, weight, inputs.eps, offset)

    backward, _ = recorded(inputs, behind_residual(add), ("dx", None, "dweight"))
    backward()  # compiled and tuned by the first call
    return Chosen(backward, "; ".join(f"programs a multiprocessor: {programs}" for programs, _ in tuned.values()))
