"""What a launch has to keep to so that its kernels are right, and so that none of its programs waits for ever.

`choose` keeps to it by itself. What comes from elsewhere, a neighbour to be tried or a file, is held against it.
"""

from __future__ import annotations

from collections.abc import Iterator

from .kinds import FewRows, Launch, OnePass, Shared, TwoPass
from .launch import RESERVED_BYTES, SUM_BYTES, few_bytes, parts_bytes, power_of_two
from .problem import Gpu, Problem

REGISTERS = 65536  # of a multiprocessor, of 32 bits
MOST_REGISTERS = 255  # of a thread
MOST_WARPS = 32  # of a program
MOST_SUMS = 4  # that `backward_parts` exchanges at once
MOST_WORDS = 128  # that it looks at: 4 loads of a warp
MOST_DELAY = 3  # tiles: with SLOTS of 8, a program may be 2 D + 1 ahead


def flaw(launch: Launch, problem: Problem, gpu: Gpu) -> str | None:
    """Why this launch must not run on this problem and device, in a few words; None where it may."""
    if isinstance(launch, OnePass):
        rules = _of_one_pass(launch, problem, gpu)
    elif isinstance(launch, Shared):
        rules = _of_shared(launch, problem, gpu)
    elif isinstance(launch, TwoPass):
        rules = _of_two_pass(launch, problem, gpu)
    else:
        rules = _of_few_rows(launch, problem, gpu)
    return next((why for broken, why in rules if broken), None)


Rules = Iterator[tuple[bool, str]]  # whether a rule is broken, and what is said then


def _of_one_pass(launch: OnePass, problem: Problem, gpu: Gpu) -> Rules:
    yield from _in_range(launch.rows, launch.cols, launch.warps, of=(launch.chunks, launch.programs, launch.stages))
    yield _uncovered(launch.chunks, launch.cols, problem)
    yield launch.fold and launch.cols < 256 * launch.warps, "rows are folded where threads share columns"
    yield (
        (launch.packed or launch.fused) and not gpu.ptx,
        "inline PTX, which this device does not take",
    )
    yield launch.packed and problem.item_bytes != 2, "packed tiles of 32-bit numbers"
    yield _limited(launch.maxnreg, gpu)
    tile_bytes = 2 * launch.rows * launch.chunks * launch.cols * problem.item_bytes
    buffers = tile_bytes * (launch.stages - 1)
    yield _too_large(buffers and buffers + SUM_BYTES, gpu)
    if launch.fused:
        yield from _not_resident(launch.programs, launch.warps, launch.maxnreg, buffers, gpu)


def _of_shared(launch: Shared, problem: Problem, gpu: Gpu) -> Rules:
    yield from _in_range(launch.rows, launch.cols, launch.warps, of=(launch.groups, launch.residents, launch.stages))
    by_words = gpu.ptx and problem.by_words and launch.cols > 1
    yield not by_words, "rows are shared in words of two numbers, with inline PTX"
    yield _uncovered(launch.parts, launch.cols, problem)
    sums = launch.rows * (2 if problem.norm == "layer" else 1)
    words = sums * power_of_two(max(1, launch.parts))
    yield sums > MOST_SUMS or words > MOST_WORDS, "more sums than one exchange holds"
    yield not 1 <= launch.delay <= MOST_DELAY, "a delay that the slots of an exchange do not allow"
    yield launch.stages < launch.delay + 2, "no stage for a tile under way beside those that wait and the one at work"
    registers = launch.maxnreg or 24
    yield registers % 8 > 0 or not 24 <= registers <= MOST_REGISTERS, "registers out of range"
    yield launch.programs > launch.residents * gpu.multiprocessors, "more programs than are said to be resident"
    buffers = parts_bytes(launch.rows, launch.cols, problem.item_bytes, launch.stages)
    yield _too_large(buffers, gpu)
    yield from _not_resident(launch.programs, launch.warps, launch.maxnreg, buffers, gpu)


def _of_two_pass(launch: TwoPass, problem: Problem, gpu: Gpu) -> Rules:
    yield launch.fused, "two passes, whose programs do not wait for each other"  # nobody would sum the partials
    yield from _in_range(launch.rows, launch.cols, launch.warps, of=(launch.groups, launch.stages))
    yield from _in_range(launch.sum_cols, launch.sum_warps, of=())
    of_sums = launch.sum_cols * (2 * problem.item_bytes + 4)  # x, dy and weight
    of_tiles = 2 * launch.rows * launch.cols * problem.item_bytes
    buffers = max(of_sums, of_tiles) * (launch.stages - 1)
    yield _too_large(buffers and buffers + SUM_BYTES, gpu)


def _of_few_rows(launch: FewRows, problem: Problem, gpu: Gpu) -> Rules:
    yield from _in_range(launch.rows, launch.cols, launch.warps, of=(launch.chunks, launch.stages))
    yield from _in_range(launch.row_cols, launch.warps, of=())
    yield _limited(launch.maxnreg, gpu)
    yield _uncovered(launch.chunks, launch.row_cols, problem)
    buffers = few_bytes(launch.rows, launch.cols, problem.item_bytes) * (launch.stages - 1)
    yield _too_large(buffers and buffers + SUM_BYTES, gpu)


def _in_range(*sizes: int, of: tuple[int, ...]) -> Rules:
    """Sizes of a tile, the last of them its warps; and `of` how many of something there are."""
    yield any(size < 1 or size & (size - 1) for size in sizes), "sizes that are no powers of two"
    yield sizes[-1] > MOST_WARPS or any(number < 1 for number in of), "sizes out of range"


def _uncovered(pieces: int, cols: int, problem: Problem) -> tuple[bool, str]:
    covered = (pieces - 1) * cols < problem.cols <= pieces * cols
    return not covered, f"{pieces} x {cols} columns do not fit rows of {problem.cols}"


def _limited(maxnreg: int | None, gpu: Gpu) -> tuple[bool, str]:
    return maxnreg is not None and not gpu.ptx, "a limit of registers, which this device's compiler does not take"


def _too_large(needed: int, gpu: Gpu) -> tuple[bool, str]:
    return needed > gpu.shared_bytes, "too much shared memory for a program"


def _not_resident(programs: int, warps: int, maxnreg: int | None, buffers: int, gpu: Gpu) -> Rules:
    """All programs are on the device at once, which those have to be that wait for each other."""
    residents = -(-programs // gpu.multiprocessors)
    needed = residents * warps * 32 * (maxnreg or MOST_REGISTERS)
    waiting = f"{residents} programs a multiprocessor wait for each other"
    yield residents > 1 and needed > REGISTERS, f"{waiting}, and there are registers for fewer"
    yield residents * (buffers + RESERVED_BYTES) > gpu.shared_total, f"{waiting}, and there is shared memory for fewer"
