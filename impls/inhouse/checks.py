"""With NORMBWD_CHECKS=1, read as Python starts: two launches that wait by the same words at once end in an assertion.

Each launch then stands between two kernels on its stream, or in its graph: the first marks the words as taken, the
second as free. Nothing is kept from call to call, so that every launch is looked at.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

from .launch import KernelCall
from .workspace import mark

IS_CHECKED = os.environ.get("NORMBWD_CHECKS") == "1"


def between_marks(calls: list[KernelCall], device: torch.device) -> list[KernelCall]:
    """The kernels of a launch, with those that mark its words."""
    word = mark(device)
    return [KernelCall(take, (1,), word, debug=True), *calls, KernelCall(free, (1,), word)]


@triton.jit
def take(word):
    before = tl.atomic_xchg(word, 1)
    tl.device_assert(before == 0, "normbwd: two launches at once on one stream's words, or of one graph twice")


@triton.jit
def free(word):
    tl.atomic_xchg(word, 0)
