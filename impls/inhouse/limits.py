"""The limits of the hardware and of the kernels, and the rules that several regimes share.

The choice of a launch keeps to them by itself. A launch that comes from elsewhere, a neighbour or a file, is checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from .problem import GpuLimits, Problem

WIDEST = 131072  # columns; a wider row is refused rather than left untested
MOST_ROWS = 2**31 - 1024  # kernels count them in 32 bits, up to the end of the last tile
REGISTERS = 65536  # of a multiprocessor, of 32 bits
MOST_REGISTERS = 255  # of a thread
MOST_WARPS = 32  # of a program
MOST_GROUPS = 1024  # of programs that share rows: each has a word in memory of fixed places (groups.py)
RESERVED_BYTES = 1024  # of shared memory that the device keeps for each program
SUM_BYTES = 4096  # beside a program's tiles, for row sums that cross between warps
# What is worth compiling for tuning:
FEWEST_ELEMENTS = 8  # of a row or a tile in a thread: one 16-byte access of 16-bit numbers
MOST_ELEMENTS = 64  # of a tile in a thread
FEWEST_WARPS = 8  # on a multiprocessor where programs share rows: fewer leave memory idle

Rules = Iterator[tuple[bool, str]]  # whether a rule is broken, and the words for it


def in_range(*sizes: int, counts: tuple[int, ...] = ()) -> Rules:
    """`sizes` are powers of two, the last of them the warps; all `counts` are at least 1."""
    yield any(size < 1 or size & (size - 1) for size in sizes), "sizes that are no powers of two"
    yield sizes[-1] > MOST_WARPS or any(number < 1 for number in counts), "sizes out of range"


def covered(pieces: int, cols: int, problem: Problem) -> Rules:
    """The pieces of a row cover it, and none of them lies beyond it."""
    covers = (pieces - 1) * cols < problem.cols <= pieces * cols
    yield not covers, f"{pieces} x {cols} columns do not fit rows of {problem.cols}"


def registers_can_be_limited(maxnreg: int | None, gpu: GpuLimits) -> Rules:
    """Only NVIDIA's compiler takes a limit of registers."""
    yield maxnreg is not None and not gpu.ptx, "a limit of registers, which this device's compiler does not take"


def shared_memory_fits(buffers: int, gpu: GpuLimits, extra: int = 0) -> Rules:
    """The buffers of one program fit, and `extra` bytes for what else it needs if it has any."""
    yield (buffers and buffers + extra) > gpu.shared_bytes, "too much shared memory for a program"


def all_resident(programs: int, warps: int, maxnreg: int | None, buffers: int, gpu: GpuLimits) -> Rules:
    """All programs fit on the device at once, which programs that wait for each other need."""
    residents = -(-programs // gpu.multiprocessors)
    needed = residents * warps * 32 * (maxnreg or MOST_REGISTERS)
    waiting = f"{residents} programs a multiprocessor wait for each other"
    yield residents > 1 and needed > REGISTERS, f"{waiting}, and there are registers for fewer"
    yield residents * (buffers + RESERVED_BYTES) > gpu.shared_total, f"{waiting}, and there is shared memory for fewer"
