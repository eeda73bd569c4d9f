"""How the programs that share rows form groups, and who does the work of a group that is incomplete.

A group is the programs of one chain of tiles, which must be on the device at once. Nothing guarantees that, so a group
begins only when all of its programs have joined it. An incomplete group may be released, by one compare-and-swap: then
it never begins, and any program takes items of its work, one after another. An item needs no other program. So a launch
ends wherever one program at a time can run.

The memory is words of 64 bits, 0 when it is made:

words[EPOCH]           grows with every launch, and so tells the words of exchange.py apart
words[START]           the groups that have begun in this launch; in the high half `base`, the units of work that all
                       launches before have done
words[DONE]            the programs of this launch that have no more work; in the high half all units that are done
words[CHAINS + chain]  how many programs of the chain have joined, and RELEASED; in the high half the items claimed
words[SENT + chain]    the items of a released chain that are sums and have been sent, in both halves

The last program of a launch to report clears what the next launch needs. Launches that share a memory must follow each
other on one stream (workspace.py).
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false

import triton
import triton.language as tl

from .checks import LATE, POLLS, poll_again
from .exchange import all_agree, braced
from .limits import MOST_GROUPS

EPOCH = tl.constexpr(0)  # places of words
START = tl.constexpr(1)
DONE = tl.constexpr(2)
CHAINS = tl.constexpr(8)
SENT = tl.constexpr(8 + MOST_GROUPS)
RINGS = tl.constexpr(8 + 2 * MOST_GROUPS)
RELEASED = tl.constexpr(1 << 16)
ITEM = tl.constexpr(1 << 32)
NO_ITEM = tl.constexpr(0x7FFFFFFF)
MOST_POLLS = tl.constexpr(16)  # about as many microseconds until a program does not wait for its group any longer


def wait() -> str:
    """The assembly that one warp of each program runs: until the high half of the word at $1 is at least $2.

    $0 is LATE if it has not come to be.
    """
    lines = [".reg .pred first, early;", ".reg .b32 thread, low, high;", ".reg .b64 now;", "mov.u32 thread, %tid.x;"]
    lines += [*POLLS, "mov.b32 $0, 0;", "setp.lt.u32 first, thread, 32;", "@!first bra MET;"]
    lines += ["WAIT:", *poll_again("$0", "MET"), "ld.acquire.gpu.global.b64 now, [$1];"]
    lines += ["mov.b64 {low, high}, now;", "sub.s32 high, high, $2;", "setp.lt.s32 early, high, 0;"]
    return braced([*lines, "@early bra WAIT;", "MET:"])


WAIT = tl.constexpr(wait())


@triton.jit
def incomplete(now, S: tl.constexpr):
    """Whether a chain's group may still be waited for."""
    return ((now & (RELEASED - 1)) < S) & ((now & RELEASED) == 0)


@triton.jit
def release(chain, now, S: tl.constexpr):
    """Release a chain, last read as `now`, if its group is incomplete; return what it then is."""
    while incomplete(now, S):
        before = tl.atomic_cas(chain, now, now | RELEASED, sem="relaxed")
        now = tl.where(before == now, now | RELEASED, before)
    return now


@triton.jit
def join_group(chain):
    """Join the group of a chain, without waiting for the result."""
    tl.atomic_add(chain, 1, sem="relaxed")


@triton.jit
def await_group(words, chain, seen, is_first, S: tl.constexpr):
    """Whether all S programs of a chain have joined; else it was released, by this program or another.

    `seen` is what each thread has read of the chain since this program joined.
    """
    together = all_agree(((seen & RELEASED) == 0) & ((seen & (RELEASED - 1)) == S))
    if not together:
        now = tl.atomic_add(chain, 0, sem="relaxed")
        polls = 0
        while incomplete(now, S):
            polls += 1
            now = tl.atomic_add(chain, 0, sem="relaxed")
            if polls >= MOST_POLLS:
                now = release(chain, now, S)
        together = (now & RELEASED) == 0
    if together & is_first:
        tl.atomic_add(words + START, 1, sem="relaxed")
    return together


@triton.jit
def read_chains(words, index, groups, S: tl.constexpr):
    """The words of all chains as they are now; no chain looks like one whose group is complete."""
    return tl.load(words + CHAINS + index, mask=index < groups, other=S, volatile=True)


@triton.jit
def find_work(seen, index, items, program, S: tl.constexpr, SCAN: tl.constexpr):
    """A chain whose group is incomplete, or of whose items some are left, and its word; -1 and 0 if there is none.

    Each thread has to have read other chains, or threads may disagree. Programs begin in different places.
    """
    is_open = tl.where((seen & RELEASED) != 0, (seen >> 32) < items, incomplete(seen, S))
    places = ((index * 40503 + program * 30011) & 0x7FFF) * SCAN + index
    best = tl.min(tl.where(is_open, places, 0x7FFFFFFF), 0)
    chosen = tl.where(best == 0x7FFFFFFF, -1, best & (SCAN - 1))
    return chosen, tl.max(tl.where(index == chosen, seen, 0), 0)


@triton.jit
def claim(chain, now):
    """The number of an item that is this program's; a large one if the chain has none, because it is not open."""
    item = NO_ITEM
    if (now & RELEASED) != 0:
        item = tl.cast(tl.atomic_add(chain, ITEM, sem="relaxed") >> 32, tl.int32)
    return item


@triton.jit
def report(done, units):
    """Publish what this program has stored, and the units of work that it has done; return `done` as it was before."""
    tl.debug_barrier()  # the stores of all threads come before the one thread's addition
    return tl.atomic_add(done, (tl.cast(units, tl.int64) << 32) + 1, sem="acq_rel")


@triton.jit
def wait_for(done, target):
    """Wait until so many units are done, and their stores can be read."""
    late = tl.inline_asm_elementwise(WAIT, "=&r,l,r", [done, target], dtype=tl.int32, is_pure=False, pack=1)
    tl.device_assert(late != LATE, "normbwd: work of this launch was never done; do others use its words?")
    tl.debug_barrier()


@triton.jit
def clear(words, index, groups, programs, epoch, units):
    """Leave the words as the next launch is to find them; for the last program that reports.

    `epoch` and `units` are those of all launches so far. Others may still read DONE, and find there what all have
    published: an addition leaves it so, and a store would not.
    """
    tl.store(words + CHAINS + index, tl.cast(index * 0, tl.int64), mask=index < groups)
    tl.store(words + SENT + index, tl.cast(index * 0, tl.int64), mask=index < groups)
    tl.store(words + EPOCH, tl.cast(epoch, tl.int64))
    tl.store(words + START, tl.cast(units, tl.int64) << 32)
    tl.atomic_add(words + DONE, -programs, sem="relaxed")
