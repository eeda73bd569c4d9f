"""NORMBWD_CHECKS, read as Python starts: what ends in an error instead of a hang, or of a wrong gradient.

Without it a program that waits traps after MOST_POLLS polls; a number above 1 is another limit, and 0 is none. With 1
the program says what it waited for, and so do two launches that wait by the same words at once: each stands between two
kernels on its stream, or in its graph, which mark the words as taken and as free. No launch is kept.

What works is never trapped. A program waits with a limit only for programs of its launch that run: for a tile of each,
or for the end of their shares, milliseconds of work beside the seconds of 2^24 trips to the L2 cache. Those that have
not started, behind a long kernel, it leaves (arrivals.py) or replaces (groups.py), with no limit. A time slice, a
debugger's stop and a checkpoint take all programs off together, and polls stand still with them; clients of MPS, and
compute-sanitizer, slow all together, but under MPS a trap ends the other clients too. Only where one program's memory
comes page by page from a host for seconds, while others have theirs, is 0 needed.
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
LATE = tl.constexpr(2)  # what a wait returns after so many polls, where it says so


def poll_again(flag: str, end: str) -> list[str]:
    """Assembly before a poll is repeated: trap after too many, or set a register to LATE and go to the label `end`.

    The counter and the predicate are those of `POLLS`.
    """
    late = [f"@late mov.b32 {flag}, {LATE.value};", f"@late bra {end};"] if IS_CHECKED else ["@late trap;"]
    return ["add.u32 polls, polls, 1;", f"setp.gt.u32 late, polls, {MOST_POLLS};", *late] if MOST_POLLS else []


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
