"""The contexts in which a backward is timed: alone with a cold cache, and those of a training step."""

from __future__ import annotations

from typing import NamedTuple

from harness.errors import UsageError

COLD = "cold"  # alone, with a cold cache: the headline; always measured, because the others are compared with it
GRAPH = "graph"  # captured once, replayed
HOT_DY = "hot-dy"  # dy written by an elementwise kernel just before
IN_A_ROW = "in-a-row"  # behind calls of its own on other memory, which leave lines to be written back
FWD_BWD = "fwd+bwd"  # the forward and then the backward in one sample, as a library's autograd function runs them
HOST = "host"  # the time on the host to enqueue one call
BESIDE = "beside:"  # with the number of programs of a kernel on another stream, each holding a multiprocessor
STEP = (COLD, GRAPH, f"{BESIDE}8", f"{BESIDE}32", HOT_DY, IN_A_ROW, HOST)
EVERY = "step"
MEANINGS = {
    COLD: "alone with a cold cache",
    GRAPH: "captured once as a CUDA graph and replayed",
    f"{BESIDE}N": "beside a kernel on another stream that holds N multiprocessors",
    HOT_DY: "dy written by another kernel just before",
    IN_A_ROW: "right behind four calls of its own on other memory",
    HOST: "the time on the host to enqueue one call",
    FWD_BWD: "the forward and then the backward in one sample, as a library's autograd function runs them",
}
WHAT = f"{', '.join(MEANINGS)}, or {EVERY} for {','.join(STEP)}"

HOLDER = "640x200"  # what each program beside holds, by default: threads x KiB of shared memory, as an all-reduce's
WAITS = "waits for other kernels"  # what a report says of a backward that cannot start beside another kernel


class HolderSize(NamedTuple):
    """What each program of the competing kernel holds: threads, and KiB of shared memory."""

    threads: int
    shared_kib: int


def parse_contexts(text: str) -> tuple[str, ...]:
    """Parse a list of contexts such as `graph,beside:8`; cold always comes first. Raises UsageError for other words."""
    named = [word.strip() for word in text.split(",")]
    listed = [context for word in named for context in (STEP if word == EVERY else (parse_context(word),))]
    return tuple(dict.fromkeys([COLD, *listed]))


def parse_context(word: str) -> str:
    """One context as it is stored; raises UsageError for another word."""
    if word in MEANINGS.keys() - {f"{BESIDE}N"}:
        return word
    number = word.removeprefix(BESIDE)
    if word.startswith(BESIDE) and number.isdecimal() and int(number) > 0:
        return f"{BESIDE}{int(number)}"
    raise UsageError(f"--context {word!r}: not one of {WHAT}")


def programs_beside(context: str) -> int | None:
    """How many programs run beside the backward; None in another context."""
    return int(context.removeprefix(BESIDE)) if context.startswith(BESIDE) else None


def parse_holder(text: str) -> HolderSize:
    """What `--holder` says, such as 640x200; raises UsageError for what cannot be launched anywhere."""
    threads, _, shared_kib = text.partition("x")
    if not (threads.isdecimal() and shared_kib.isdecimal()):
        raise UsageError(f"--holder {text}: must be THREADSxKIB, such as 640x200")
    size = HolderSize(int(threads), int(shared_kib))
    if not 64 <= size.threads <= 1024 or size.threads % 64 or (size.threads // 64).bit_count() > 2:
        raise UsageError(f"--holder {text}: threads must be 64 to 1024, a power of two or the sum of two (512, 640)")
    if size.shared_kib < 1:
        raise UsageError(f"--holder {text}: must hold shared memory, at least 1 KiB")
    return size
