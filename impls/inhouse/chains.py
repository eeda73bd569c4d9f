"""Chains: how the programs of one launch share its work out, so that a launch ends though most of them never start.

The tiles of a launch are cut into as many chains as there are programs: chain c has tiles c, c + programs, and so on.
Each program begins with the chain of its own number. When it is done it takes chains that nobody has begun, and waits
only when none is left: for work that others are at, never for a program that has yet to start. One that starts late
finds its chain taken, and ends. So a launch ends as soon as one program of it can run, and needs no cooperative launch.
A chain's sums are the same bits, whoever made them.

`words` (int64) outlive the launch, and nothing resets them: a CUDA graph may replay. Launches that share them follow
each other on one stream (workspace.py). They may have any number of programs up to MOST: chain c stands for the words
c, c + programs and so on, so that each launch changes all of them alike.

words[chain]  Twice the number of launches before, the `epoch`. Another program takes a chain by a maximum that is one
              more: it changes nothing where the chain's own program, or another, came before. The chain's own program
              adds 2 as it starts. So one addition tells it which launch this is, and whether the chain is its own. If
              it was taken, the one is subtracted again.
words[MOST]   How many words belong to chains that are done, of all launches. What a program has stored is visible to
              whoever sees what it adds.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportArgumentType=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from .exchange import braced

MOST = tl.constexpr(1024)  # programs
STARTED = tl.constexpr(2)
TAKEN = tl.constexpr(1)
NOTHING = tl.constexpr(0x7FFFFFFF)


def arrival() -> str:
    """The assembly by which the first thread adds $2 to the word at $1; it gets the sum before that, all others 0."""
    lines = [".reg .pred first;", ".reg .b32 thread;", "mov.u32 thread, %tid.x;", "setp.eq.u32 first, thread, 0;"]
    return braced([*lines, "mov.b64 $0, 0;", "@first atom.add.acq_rel.gpu.global.u64 $0, [$1], $2;"])


def wait() -> str:
    """The assembly by which the first warp waits until the word at $1 is no less than $2; lane 0 has seen $3 there.

    One warp of a program looks: hundreds of warps that read one word would delay the programs that add to it.
    """
    lines = [".reg .pred first, ready;", ".reg .b32 thread;", ".reg .b64 now;", "mov.u32 thread, %tid.x;"]
    lines += ["setp.lt.u32 first, thread, 32;", "@!first bra MET;", "mov.b64 now, $3;"]
    lines += ["LOOK:", "setp.ge.s64 ready, now, $2;", "vote.sync.any.pred ready, ready, 0xffffffff;", "@ready bra MET;"]
    lines += ["ld.acquire.gpu.global.b64 now, [$1];", "bra LOOK;"]
    return braced([*lines, "MET:", "mov.b32 $0, 0;"])


ARRIVAL = tl.constexpr(arrival())
WAIT = tl.constexpr(wait())


@triton.jit
def start(words, program):
    """Begin a launch: its epoch, and whether the chain of this program's number is its own."""
    before = tl.atomic_add(words + program, STARTED, sem="relaxed")
    return before >> 1, (before & TAKEN) == 0


@triton.jit
def leave(words, program, programs, epoch, own, OTHERS: tl.constexpr):
    """Leave the words that this program's chain stands for, at most OTHERS + 1, as the next launch is to find them.

    Nobody else changes the other words, and nobody any longer the chain's own, but for maxima that are too low.
    """
    if not own:
        tl.atomic_add(words + program, -TAKEN, sem="relaxed")
    other = program + programs * (1 + tl.arange(0, OTHERS))
    tl.store(words + other, (epoch + 1) * STARTED + other * 0, mask=other < MOST)


@triton.jit
def look(words, chains, programs):
    """The words of all chains as they are now."""
    return tl.load(words + chains, mask=chains < programs, other=0x7FFFFFFFFFFFFFFF, volatile=True)


@triton.jit
def open_chain(seen, epoch, chains, program):
    """A chain that nobody has begun, as `seen`, or NOTHING; different programs prefer different ones.

    The chains are at least as many as threads, so that no two threads look at one word, and may see it differently.
    """
    preferred = ((chains * 40503 + program * 30011) & 0x3FFF) << 16
    chain = tl.min(tl.where(seen <= epoch * STARTED, preferred + chains, NOTHING), 0)
    return tl.where(chain == NOTHING, chain, chain & 0xFFFF)


@triton.jit
def take(words, chain, epoch):
    """Take a chain, if nobody has begun it."""
    return tl.atomic_max(words + chain, epoch * STARTED + TAKEN, sem="relaxed") == epoch * STARTED


@triton.jit
def arrive(words, chain, programs, INTERPRETED: tl.constexpr):
    """Publish what this program has stored of a chain that is done; return what `wait_for_all` wants to be told."""
    tl.debug_barrier()  # the stores of all threads come before the one thread's addition
    worth = tl.cdiv(MOST - chain, programs).to(tl.int64)
    if INTERPRETED:
        return tl.atomic_add(words + MOST, worth) + worth
    before = tl.inline_asm_elementwise(ARRIVAL, "=&l,l,l", [words + MOST, worth], dtype=tl.int64, is_pure=False, pack=1)
    return before + worth


@triton.jit
def wait_for_all(words, epoch, seen, INTERPRETED: tl.constexpr):
    """Wait until all chains are done. In Triton's interpreter they are: the first program has taken all."""
    if not INTERPRETED:
        done = [words + MOST, (epoch + 1) * MOST, seen]
        tl.inline_asm_elementwise(WAIT, "=r,l,l,l", done, dtype=tl.int32, is_pure=False, pack=1)
        tl.debug_barrier()  # the reads of the others come after the one warp's wait
