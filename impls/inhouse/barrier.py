"""A barrier for all programs of one launch.

It needs every program on the device at once, which a cooperative launch promises, and a `state` that outlives the
launch, 0 when it is made. `state[0]` is the barrier: every program adds 1 but the first, which adds what is missing to
2^31. So its highest bit turns over exactly when all have come, and the others are 0 again (the trick of CUDA's
cooperative groups). `state[1]` is an epoch that only grows; the program that comes last advances it. No launch has
anything to reset, a CUDA graph replays, and no word of an earlier launch can be taken for one of this. Launches that
share a state must follow each other on one stream (workspace.py).
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportArgumentType=false

import triton
import triton.language as tl


def barrier(*, wait: bool, advance: bool) -> str:
    """The assembly that one warp of each program runs, its first lane for all.

    $1: the state; $2: the number that this program adds; $3: the next epoch, if `advance`. One warp of a program waits
    for all of its warps: hundreds of warps that read one word would delay the programs that have yet to arrive.
    """
    lines = [".reg .pred first, mine, true;", ".reg .b32 thread, before, now;", "mov.u32 thread, %tid.x;"]
    lines += ["setp.lt.u32 first, thread, 32;", "@!first bra MET;", "setp.eq.u32 mine, thread, 0;"]
    lines += ["mov.b32 before, 0;", "@mine atom.add.acq_rel.gpu.global.u32 before, [$1], $2;"]
    if advance:
        lines += ["add.u32 now, before, $2;", "and.b32 now, now, 2147483647;"]
        lines += ["setp.eq.and.u32 true, now, 0, mine;", "@true st.relaxed.gpu.global.b32 [$1+4], $3;"]
    if wait:
        lines += ["shfl.sync.idx.b32 before, before, 0, 31, 0xffffffff;", "and.b32 before, before, 2147483648;"]
        lines += ["WAIT:", "ld.acquire.gpu.global.b32 now, [$1];", "and.b32 now, now, 2147483648;"]
        lines += ["setp.eq.u32 true, now, before;", "@true bra WAIT;"]
    return braced([*lines, "MET:", "mov.b32 $0, 0;"])


def braced(lines: list[str]) -> str:
    """The lines as one block of assembly, whose registers and labels are its own."""
    return "{\n" + "\n".join(lines) + "\n}"


MEET = tl.constexpr(barrier(wait=True, advance=False))
MEET_AND_ADVANCE = tl.constexpr(barrier(wait=True, advance=True))
ADVANCE = tl.constexpr(barrier(wait=False, advance=True))


@triton.jit
def meet(state, epoch=None, WAIT: tl.constexpr = True):
    """Publish all that this program has stored, and wait until every program has done so; `epoch` is the next one."""
    tl.debug_barrier()  # the stores of all threads come before the one thread's arrival
    added = tl.where(tl.program_id(0) == 0, 2147483647 - (tl.num_programs(0) - 2), 1)
    if epoch is None:
        tl.inline_asm_elementwise(MEET, "=r,l,r", [state, added], dtype=tl.int32, is_pure=False, pack=1)
    elif WAIT:
        tl.inline_asm_elementwise(
            MEET_AND_ADVANCE, "=r,l,r,r", [state, added, epoch], dtype=tl.int32, is_pure=False, pack=1
        )
    else:
        tl.inline_asm_elementwise(ADVANCE, "=r,l,r,r", [state, added, epoch], dtype=tl.int32, is_pure=False, pack=1)
    if WAIT:
        tl.debug_barrier()  # the reads of the others come after the one thread's wait
