"""How the programs of one launch come together for the last sum, although some may start only when others end.

A program arrives when it has stored its partial gradients. If all programs of the launch have started by then, it waits
until all have arrived, and adds up the piece of the gradients that has its own number. That is the usual case, on a
free GPU. If another kernel holds a part of the GPU, some programs may not have started, because there is no room for
them. Then a program that has arrived may leave, which makes room for another, and the programs that stay take its
piece. So programs wait only for programs that are running: a launch ends if one program at a time can run, and needs
no cooperative launch. The bits of a piece do not depend on which program adds it up.

`words` (int64) outlive the launch and are never cleared, so that a CUDA graph may replay. Launches that share them
follow each other on one stream (workspace.py), and may have different numbers of programs, up to MOST. Program p counts
as much as there are numbers p, p + programs, p + 2 programs, ... below MOST, so that every launch adds MOST in all.

words[STARTED]  The count of programs that have started, over all launches.
words[ARRIVED]  WORTH times the count of programs that have arrived, over all launches, plus how many programs of this
                launch leave: never all of them, and no more once all have arrived. An arrival releases what the program
                has stored.
words[ASKED]    If any program leaves, each that has arrived draws a number here, and leaves if that is less than how
                many leave. So one program decides for all, and they do not change one word one after another.
words[TAKEN]    If any program leaves, the pieces that the others have taken. Each of them draws one number too many;
                the last of these draws sets TAKEN, ASKED and the part of ARRIVED about leaving to 0 again.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportArgumentType=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from .checks import LATE, MOST_POLLS, POLLS, poll_again
from .exchange import all_agree, braced

MOST = tl.constexpr(1024)  # programs
WORTH = tl.constexpr(2048)  # more than can leave
STARTED = tl.constexpr(0)  # places of words: those that all programs use are each in a line of 128 bytes
ARRIVED = tl.constexpr(16)
TAKEN = tl.constexpr(32)
ASKED = tl.constexpr(33)
PATIENCE = tl.constexpr(8)  # polls, of some microseconds each, without a new start
MOST_STRANGE = tl.constexpr(min(MOST_POLLS, 1 << 16))  # polls in a row that find what no launch alone leaves for long
# Stands for STARTED in all threads but the first: reads as "all started", and is never waited for.
NOT_FIRST_THREAD = 1 << 51


def arrival() -> str:
    """Assembly: the first thread reads the word at $2, and adds $4 to the word at $3.

    $0 is the word that it read, and $1 the sum before; NOT_FIRST_THREAD and 0 in all other threads. The branch around
    the first warp keeps the compiler from waiting for the read before it sends the addition, which would take as long
    again.
    """
    lines = [".reg .pred first;", ".reg .b32 thread;", "mov.u32 thread, %tid.x;", "setp.lt.u32 first, thread, 32;"]
    lines += [f"mov.b64 $0, {NOT_FIRST_THREAD};", "mov.b64 $1, 0;", "@!first bra SENT;"]
    lines.append("setp.eq.u32 first, thread, 0;")
    lines += ["@first ld.relaxed.gpu.global.b64 $0, [$2];", "@first atom.add.acq_rel.gpu.global.u64 $1, [$3], $4;"]
    return braced([*lines, "SENT:"])


def wait() -> str:
    """Assembly: the first warp polls the word at $1 until it is at least the $2 of any lane; $3 is its value so far.

    $0 is 1 if it is more than that, LATE if it never is so much, and 0 in all other warps. Only one warp of a program
    polls: hundreds of warps that read one word would delay the programs that add to it.
    """
    lines = [".reg .pred first, ready, more;", ".reg .b32 thread;", ".reg .b64 now;", "mov.u32 thread, %tid.x;"]
    lines += [*POLLS, "mov.b32 $0, 0;", "setp.lt.u32 first, thread, 32;", "@!first bra MET;", "mov.b64 now, $3;"]
    lines += ["LOOK:", "setp.ge.s64 ready, now, $2;", "vote.sync.any.pred ready, ready, 0xffffffff;"]
    lines += ["@ready bra SEEN;", *poll_again("$0", "MET"), "ld.acquire.gpu.global.b64 now, [$1];", "bra LOOK;"]
    lines += ["SEEN:", "setp.gt.s64 more, now, $2;"]
    lines += ["vote.sync.any.pred more, more, 0xffffffff;", "selp.b32 $0, 1, 0, more;", "MET:"]
    return braced(lines)


ARRIVAL = tl.constexpr(arrival())
WAIT = tl.constexpr(wait())
_TRAP = [".reg .pred late;", f"setp.gt.s32 late, $1, {MOST_STRANGE.value};", "@late trap;"] if MOST_POLLS else []
TRAP = tl.constexpr(braced([*_TRAP, "mov.b32 $0, 0;"]))


@triton.jit
def worth_of(program, programs):
    """How much a program counts: the numbers program, program + programs, ... below MOST."""
    return tl.cast(tl.cdiv(MOST - program, programs), tl.int64)


@triton.jit
def start(words, program, programs):
    """Count this program as started, without waiting for the result."""
    tl.atomic_add(words + STARTED, worth_of(program, programs), sem="relaxed")


@triton.jit
def arrive(words, program, programs, INTERPRETED: tl.constexpr):
    """Release what this program has stored; return STARTED and ARRIVED as the first thread then sees them.

    All other threads get NOT_FIRST_THREAD, and follow the first in `wait_for_all`.
    """
    tl.debug_barrier()  # all threads have stored before the first thread adds
    return send_arrival(words, program, programs, INTERPRETED)


@triton.jit
def send_arrival(words, program, programs, INTERPRETED: tl.constexpr):
    """What `arrive` does after its barrier."""
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
    """The value of ARRIVED when all programs of this launch have arrived and none leaves."""
    return ((started + (MOST - 1)) & -MOST) * WORTH


@triton.jit
def all_started(started):
    """Whether all programs of this launch have started; the program that read STARTED has."""
    return started & (MOST - 1) == 0


@triton.jit
def wait_for_all(words, started, seen, INTERPRETED: tl.constexpr):
    """If all have started, wait until all have arrived; return whether both are so and none leaves.

    It is a barrier of the program.
    """
    if INTERPRETED:
        return all_started(started) & (seen == all_arrived(started))
    target = tl.where(all_started(started), all_arrived(started), 0)
    return all_agree(all_started(started) & (await_arrivals(words, target, seen) == 0))


@triton.jit
def await_arrivals(words, target, seen):
    """Wait until ARRIVED is `target`, or 1 is returned if it is more; it was `seen` so far."""
    asked = [words + ARRIVED, target, seen]
    more = tl.inline_asm_elementwise(WAIT, "=&r,l,l,l", asked, dtype=tl.int32, is_pure=False, pack=1)
    tl.device_assert(more != LATE, "normbwd: programs of this launch never arrived; do others use its words?")
    return more


@triton.jit
def wait_or_leave(words, program, programs, INTERPRETED: tl.constexpr):
    """Wait until all have arrived, or leave; return how many programs leave, or MOST if this one does.

    A program that leaves makes room for one that has not started, so as many leave as have not. If nothing starts for a
    while, because another kernel took the room, more leave, at different times by their numbers. Another launch by the
    same words may take the room for good: then ARRIVED reaches the target before all have started, or more numbers are
    drawn than there are programs, and it traps.
    """
    started = tl.atomic_add(words + STARTED, 0, sem="relaxed")
    target = all_arrived(started)
    number = tl.cast(MOST, tl.int64)  # none drawn yet
    leave = tl.cast(0, tl.int64)
    polls = 0
    strange = 0
    while not (all_started(started) | (number < leave)):
        now = tl.atomic_add(words + ARRIVED, 0, sem="relaxed")
        leave = now % WORTH
        to_come = tl.cdiv(tl.cast(target // WORTH - started, tl.int32), MOST // programs)
        more = tl.maximum(to_come - leave, tl.where(polls > program % PATIENCE, 1, 0))
        more = tl.minimum(more, programs - 1 - leave)
        if (now < target) & (more > 0):
            decided = tl.atomic_cas(words + ARRIVED, now, now + more, sem="relaxed") == now
            leave += tl.where(decided, more, 0)
        number = ask(words, number, leave)
        if number >= leave:
            before = started
            started = tl.atomic_add(words + STARTED, 0, sem="relaxed")
            polls = tl.where(started == before, polls + 1, 0)
            strange = tl.where((now >= target) | ((number >= programs) & (number != MOST)), strange + 1, 0)
            if not INTERPRETED:
                tl.inline_asm_elementwise(TRAP, "=r,r", [strange], dtype=tl.int32, is_pure=False, pack=1)
    if number >= leave:
        if not INTERPRETED:
            await_arrivals(words, target, tl.cast(0, tl.int64))
            tl.debug_barrier()
        leave = tl.atomic_add(words + ARRIVED, 0, sem="relaxed") - target
        number = ask(words, number, leave)
    over = (number < MOST) & (leave == 0)  # the programs that stay have already ended, so this one leaves
    return tl.where(over | (number < leave), MOST, leave)


@triton.jit
def ask(words, number, leave):
    """Draw a number, once, if any program leaves."""
    if (leave > 0) & (number == MOST):
        number = tl.atomic_add(words + ASKED, 1, sem="relaxed")
    return number


@triton.jit
def first_piece(words, program, programs, left):
    """The piece of the last sum to begin with, after `wait_or_leave`; no piece is `programs` or more."""
    piece = tl.where(left < MOST, program, programs)
    if (left > 0) & (left < MOST):
        piece = take(words, programs, left)
    return piece


@triton.jit
def next_piece(words, programs, left):
    """The piece after that one."""
    piece = programs
    if left > 0:
        piece = take(words, programs, left)
    return piece


@triton.jit
def take(words, programs, left):
    """Take a piece of the last sum if `left` programs have left; a number from `programs` on is no piece."""
    piece = tl.atomic_add(words + TAKEN, 1, sem="relaxed")
    if piece == programs + (programs - left) - 1:  # the last draw: no program reads the words any more
        tl.atomic_add(words + TAKEN, -(piece + 1), sem="relaxed")
        tl.atomic_add(words + ASKED, -programs, sem="relaxed")
        tl.atomic_add(words + ARRIVED, -left, sem="relaxed")
    return tl.cast(piece, tl.int32)
