"""The project's own Triton kernels, which leave so many multiprocessors to other kernels (`sm_margin`)."""

from __future__ import annotations

from collections.abc import Callable

from harness.cases import Grads, Inputs, NormCase
from harness.errors import UnsupportedError

from . import triton_inhouse

name = "triton-inhouse-margin"
library = "triton-inhouse"
for_speed = ()  # it leaves multiprocessors idle
version = 4
requires = triton_inhouse.requires
variants = {"triton-inhouse-margin8": 8, "triton-inhouse-margin32": 32}  # for --context beside:8 and beside:32
compiles_ahead = True
handles = triton_inhouse.handles
on_request = True


def unsupported(case: NormCase, sm_margin: int) -> str | None:  # noqa: ARG001  alike for every margin
    """Say why this case cannot run, or None."""
    return "no other kernel runs beside a CPU's" if case.device == "cpu" else triton_inhouse.unsupported(case)


def notes(case: NormCase, sm_margin: int) -> list[str]:  # noqa: ARG001  alike for every case
    """How many multiprocessors are left."""
    return [f"leaves {sm_margin} multiprocessors to other kernels"]


release = triton_inhouse.release


def prepare(inputs: Inputs, sm_margin: int) -> Callable[[], Grads]:
    """As triton-inhouse; raises UnsupportedError on a device that has no more multiprocessors."""
    from .inhouse.device import gpu_of

    multiprocessors = gpu_of(inputs.x.device).multiprocessors
    if sm_margin >= multiprocessors:
        raise UnsupportedError(f"none of {multiprocessors} multiprocessors would be left")
    return triton_inhouse.launching(inputs, sm_margin=sm_margin)
