"""The kernel that holds multiprocessors: every program takes threads and shared memory, and waits to be released."""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportCallIssue=false

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

REGISTERS = gl.constexpr(24)  # of a thread: the fewest that warps may ask for


@gluon.jit
def idle():
    """What the warps do that are only there to be counted."""


@gluon.jit
def wait(started, ended, release, looks, kib: gl.constexpr, lanes: gl.constexpr):
    program = gl.program_id(0)
    across: gl.constexpr = gl.BlockedLayout([1], [lanes], [gl.num_warps()], [0])
    held = gl.allocate_shared_memory(gl.int32, [kib, 256], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    held.index(0).store(gl.zeros([256], gl.int32, across))  # what is never written is not allocated
    gl.store(started + program, 1)
    released = 0
    looked = 0
    # One thread looks, by an atomic, and tells the others: all of a program leave the loop together. The number of
    # looks is bounded, so that whatever becomes of the host nothing hangs.
    while (released == 0) & (looked < looks):
        released = gl.atomic_or(release, 0, sem="relaxed")
        looked += 1
    gl.store(ended + program, 2 - released)


@gluon.jit
def hold(
    started,  # (programs) int32 in the host's memory: 1 once a program runs
    ended,  # (programs) int32 in the host's memory: 1 once it ended because it was released, 2 because time was up
    release,  # int32 on the device: 1 ends all programs
    looks,  # how often each looks at it before it gives up
    kib: gl.constexpr,
    lanes: gl.constexpr,
    more: gl.constexpr,  # warps beside those of the launch, whose number has to be a power of two; 0 before Hopper
):
    if more == 0:
        wait(started, ended, release, looks, kib, lanes)
    else:
        gl.warp_specialize([(wait, (started, ended, release, looks, kib, lanes)), (idle, ())], [more], [REGISTERS])
