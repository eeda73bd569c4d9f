"""Arrivals: how the programs of one launch come to their last sum, though some of them start only when others end.

A program that has stored its partial gradients arrives. Where all programs of the launch have started it waits for all
to arrive, and adds up one piece of the gradients, that of its own number: this is what happens on a GPU that is free.
Where another kernel holds a part of the GPU, programs that are to come may need the room of one that is done. So
whoever arrives before all have started may leave, and those that stay take its piece. A program so waits only for
programs that are running, and a launch ends as soon as one program of it can run: it needs no cooperative launch.
Which program adds up a piece does not show in its bits.

`words` (int64) outlive the launch, and nothing clears them: a CUDA graph may replay. Launches that share them follow
each other on one stream (workspace.py). They may have any number of programs up to MOST: program p is worth the
numbers p, p + programs and so on below MOST, so that each launch adds MOST.

words[STARTED]  What the programs that have started are worth, of all launches.
words[ARRIVED]  WORTH times what those that have arrived are worth, of all launches, and how many of this launch leave:
                all but one at most, and no more once all have arrived. What a program has stored is visible to whoever
                sees it here.
words[ASKED]    Where any leave, every program that has arrived asks here for a number, and leaves if it is less than
                how many do. So one program decides for all, and they need not change one word in turn.
words[TAKEN]    Pieces that those that stay have taken, where any leave. Each takes one too many, and who takes the last
                of these makes 0 of it, of ASKED and of those that leave.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportArgumentType=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from .exchange import all_agree, braced

MOST = tl.constexpr(1024)  # programs
WORTH = tl.constexpr(2048)  # more than can leave
STARTED = tl.constexpr(0)  # places of words, each in a line of 128 bytes
ARRIVED = tl.constexpr(16)
TAKEN = tl.constexpr(32)
ASKED = tl.constexpr(33)
PATIENCE = tl.constexpr(8)  # looks, of some microseconds, at which nothing has changed
UNTOLD = 1 << 51  # in place of STARTED: as if all had started, and ARRIVED will never come to what that is worth


def arrival() -> str:
    """The assembly by which the first thread reads the word at $2, and then adds $4 to the word at $3.

    It gets what it has read, and the sum before; all others get UNTOLD and 0. Both are sent before anybody waits for
    what is read: the branch around the first warp keeps its use out of there, which would cost one more way to memory.
    """
    lines = [".reg .pred first;", ".reg .b32 thread;", "mov.u32 thread, %tid.x;", "setp.lt.u32 first, thread, 32;"]
    lines += [f"mov.b64 $0, {UNTOLD};", "mov.b64 $1, 0;", "@!first bra SENT;", "setp.eq.u32 first, thread, 0;"]
    lines += ["@first ld.relaxed.gpu.global.b64 $0, [$2];", "@first atom.add.acq_rel.gpu.global.u64 $1, [$3], $4;"]
    return braced([*lines, "SENT:"])


def wait() -> str:
    """The assembly by which the first warp waits until the word at $1 is no less than $2 of any lane; it has seen $3.

    $0 is whether it is more. One warp of a program looks, and all others get 0: hundreds of warps that read one word
    would delay the programs that add to it.
    """
    lines = [".reg .pred first, ready, more;", ".reg .b32 thread;", ".reg .b64 now;", "mov.u32 thread, %tid.x;"]
    lines += ["mov.b32 $0, 0;", "setp.lt.u32 first, thread, 32;", "@!first bra MET;", "mov.b64 now, $3;"]
    lines += [
        "LOOK:",
        "setp.ge.s64 ready, now, $2;",
        "vote.sync.any.pred ready, ready, 0xffffffff;",
        "@ready bra SEEN;",
    ]
    lines += ["ld.acquire.gpu.global.b64 now, [$1];", "bra LOOK;", "SEEN:", "setp.gt.s64 more, now, $2;"]
    lines += ["vote.sync.any.pred more, more, 0xffffffff;", "selp.b32 $0, 1, 0, more;", "MET:"]
    return braced(lines)


ARRIVAL = tl.constexpr(arrival())
WAIT = tl.constexpr(wait())


@triton.jit
def worth_of(program, programs):
    """How many numbers below MOST a program stands for."""
    return tl.cast(tl.cdiv(MOST - program, programs), tl.int64)


@triton.jit
def start(words, program, programs):
    """Start, without waiting until anybody knows."""
    tl.atomic_add(words + STARTED, worth_of(program, programs), sem="relaxed")


@triton.jit
def arrive(words, program, programs, INTERPRETED: tl.constexpr):
    """Publish what this program has stored; return which programs have started, and what `wait_for_all` is to be told.

    Both are what the first thread has seen, which started for its program. All others are UNTOLD, and go by it.
    """
    tl.debug_barrier()  # the stores of all threads come before the one thread's addition
    worth = worth_of(program, programs) * WORTH
    if INTERPRETED:
        return tl.load(words + STARTED), tl.atomic_add(words + ARRIVED, worth) + worth
    started, before = tl.inline_asm_elementwise(
        ARRIVAL,
        "=&l,=&l,l,l,l",
        [words + STARTED, words + ARRIVED, worth],
        dtype=(tl.int64, tl.int64),
        is_pure=False,
        pack=1,
    )
    return started, before + worth


@triton.jit
def all_arrived(started):
    """What ARRIVED comes to in this launch, if nobody leaves; each program has started when it looks."""
    return ((started + (MOST - 1)) & -MOST) * WORTH


@triton.jit
def all_started(started):
    """Whether all programs of this launch have."""
    return started & (MOST - 1) == 0


@triton.jit
def wait_for_all(words, started, seen, INTERPRETED: tl.constexpr):
    """Wait until all have arrived, if all have started; whether that is so, and nobody left. All threads meet here."""
    if INTERPRETED:
        return all_started(started) & (seen == all_arrived(started))
    target = tl.where(all_started(started), all_arrived(started), 0)
    asked = [words + ARRIVED, target, seen]
    more = tl.inline_asm_elementwise(WAIT, "=&r,l,l,l", asked, dtype=tl.int32, is_pure=False, pack=1)
    return all_agree(all_started(started) & (more == 0))


@triton.jit
def stays(words, program, programs, INTERPRETED: tl.constexpr):
    """Wait until all have arrived, or leave; return how many leave where this program stays, and MOST if it leaves.

    Whoever leaves makes room for one program that is to come. So as many leave at once as are to come. Where nothing
    has started for a while, because another kernel took that room, more do, and not all at the same time.
    """
    started = tl.atomic_add(words + STARTED, 0, sem="relaxed")
    target = all_arrived(started)
    number = tl.cast(MOST, tl.int64)  # none as yet
    leave = tl.cast(0, tl.int64)
    looks = 0
    while not (all_started(started) | (number < leave)):
        now = tl.atomic_add(words + ARRIVED, 0, sem="relaxed")
        leave = now % WORTH
        to_come = tl.cdiv(tl.cast(target // WORTH - started, tl.int32), MOST // programs)
        more = tl.maximum(to_come - leave, tl.where(looks > program % PATIENCE, 1, 0))
        more = tl.minimum(more, programs - 1 - leave)
        if (now < target) & (more > 0):
            decided = tl.atomic_cas(words + ARRIVED, now, now + more, sem="relaxed") == now
            leave += tl.where(decided, more, 0)
        number = ask(words, number, leave)
        if number >= leave:
            before = started
            started = tl.atomic_add(words + STARTED, 0, sem="relaxed")
            looks = tl.where(started == before, looks + 1, 0)
    if number >= leave:
        if not INTERPRETED:
            asked = [words + ARRIVED, target, tl.cast(0, tl.int64)]
            tl.inline_asm_elementwise(WAIT, "=&r,l,l,l", asked, dtype=tl.int32, is_pure=False, pack=1)
            tl.debug_barrier()
        leave = tl.atomic_add(words + ARRIVED, 0, sem="relaxed") - target
        number = ask(words, number, leave)
    over = (number < MOST) & (leave == 0)  # more left than had when it asked, and those that stay have ended
    return tl.where(over | (number < leave), MOST, leave)


@triton.jit
def ask(words, number, leave):
    """Ask for a number, once, if any leave."""
    if (leave > 0) & (number == MOST):
        number = tl.atomic_add(words + ASKED, 1, sem="relaxed")
    return number


@triton.jit
def take(words, programs, left):
    """Take a piece of the last sum, where so many programs have left; from `programs` on there is none."""
    piece = tl.atomic_add(words + TAKEN, 1, sem="relaxed")
    if piece == programs + (programs - left) - 1:  # the last one too many: all have asked, and nobody looks any more
        tl.atomic_add(words + TAKEN, -(piece + 1), sem="relaxed")
        tl.atomic_add(words + ASKED, -programs, sem="relaxed")
        tl.atomic_add(words + ARRIVED, -left, sem="relaxed")
    return tl.cast(piece, tl.int32)
