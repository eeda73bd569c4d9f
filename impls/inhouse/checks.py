"""NORMBWD_CHECKS, read as Python starts: what ends in an error instead of a hang, or of a wrong gradient.

A program that waits traps after 2^24 polls, or another number above 1; with 0 never. With 1 it says what it waited for,
and so do two launches by the same words at once: kernels before and behind each mark the words. No launch is kept.

What works is not trapped. The limit is of waits for running programs of the same launch, at most until their rows are
done: milliseconds, beside seconds for 2^24 trips to the L2 cache. For those that a long kernel keeps from starting it
does not hold. Time slices and a debugger stop all programs together, and no polls count; MPS and compute-sanitizer slow
all (but under MPS a trap ends other clients). Only where rows come page by page from a host, for seconds, use 0.
Shared rows with a residual or a second norm, which a limit slows, have one only where it is set.
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

_CHECKS = os.environ.get("NORMBWD_CHECKS", "")
IS_CHECKED = _CHECKS == "1"
MOST_POLLS = 1 << 24 if IS_CHECKED or not _CHECKS.isdecimal() else int(_CHECKS)
MOST_POLLS_BESIDE = MOST_POLLS if _CHECKS.isdecimal() else 0  # for shared rows with a residual or a second norm
LATE = tl.constexpr(2)  # what a wait returns after so many polls, where it says so


def poll_again(flag: str, end: str, most: int = MOST_POLLS) -> list[str]:
    """Assembly before a poll is repeated: trap after too many, or set a register to LATE and go to the label `end`.

    The counter and the predicate are those of `POLLS`.
    """
    late = [f"@late mov.b32 {flag}, {LATE.value};", f"@late bra {end};"] if IS_CHECKED else ["@late trap;"]
    return ["add.u32 polls, polls, 1;", f"setp.gt.u32 late, polls, {most};", *late] if most else []


POLLS = [".reg .pred late;", ".reg .b32 polls;", "mov.u32 polls, 0;"] if MOST_POLLS else []


def between_marks(calls: list[KernelCall], device: torch.device) -> list[KernelCall]:
    """The kernels of a launch, with those that mark its words."""
    word = mark(device)
    for call in calls:
        call.options |= {"debug": True, "sanitize_overflow": False}  # for `tl.device_assert` alone
    return [KernelCall(take, (1,), word, debug=True), *calls, KernelCall(free, (1,), word)]


@triton.jit
def take(word):
    before = tl.atomic_xchg(word, 1)
    tl.device_assert(before == 0, "normbwd: two launches at once on one stream's words, or of one graph twice")


@triton.jit
def free(word):
    tl.atomic_xchg(word, 0)
