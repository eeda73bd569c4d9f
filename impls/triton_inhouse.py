"""The project's own Triton kernels: fp32 partial gradients, summed in a fixed order, mostly by one launch."""

from __future__ import annotations

import os
from collections.abc import Callable

from harness.cases import Grads, Inputs, NormCase

from .inhouse.launch import WIDEST

name = "triton-inhouse"
requires = ("triton",)
compiles_ahead = True


def unsupported(case: NormCase) -> str | None:
    """Say why this case cannot run, or None."""
    if case.cols > WIDEST:
        return f"rows of at most {WIDEST} columns"
    if case.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        return "on a CPU only in the Triton interpreter: set TRITON_INTERPRET=1"
    if case.device == "cpu" and case.dtype == "bf16" and case.inputs.startswith("subnormal"):
        return "Triton's interpreter loses bits of subnormal bf16 numbers as it loads them; a GPU does not"
    return None


def untimed(case: NormCase) -> str | None:
    """Say why this case must not be timed, or None."""
    return "verified in the Triton interpreter, which is never timed" if case.device == "cpu" else None


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    """The kernels take the statistics that come with the inputs; nothing else is saved."""
    from .inhouse.backward import norm_backward

    def backward() -> Grads:
        gradients = norm_backward(
            inputs.dy,
            inputs.x,
            inputs.weight,
            inputs.mean,
            inputs.rstd,
            has_bias=inputs.bias is not None,
            zero_centred=inputs.case.zero_centred,
        )
        return Grads(*gradients)

    return backward
