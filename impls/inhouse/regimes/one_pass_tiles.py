"""The tiles of one pass: of which shape, and how many programs, warps and registers take them.

Which is fastest was found by measuring on an H200; docs/kernel.md says what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..launch import STAGES, floor_power_of_two, power_of_two
from ..limits import FEWEST_WARPS, REGISTERS, RESERVED_BYTES
from ..problem import GpuLimits, Problem


@dataclass(frozen=True)
class Tile:
    """Tiles of `rows` rows, each `chunks` x `cols` columns, which `programs` programs of `warps` warps take in turn.

    As it is chosen here, it has as many programs and stages as there may be. one_pass_kernel.py says what `fold`,
    `packed` and `reread` do.
    """

    rows: int
    chunks: int
    cols: int
    warps: int
    programs: int
    fold: bool
    packed: bool = False
    reread: bool = False
    maxnreg: int | None = None
    stages: int = STAGES


def is_light(problem: Problem, gpu: GpuLimits) -> bool:
    """Whether tiles can be packed, and registers are left that make it worth while."""
    single = problem.accumulators <= 1
    return problem.item_bytes == 2 and problem.weight_bytes <= 2 and single and gpu.ptx


def one_each(problem: Problem, gpu: GpuLimits) -> Tile | None:
    """A tile for programs that take one each; None where programs take many in turn.

    Where nothing is carried from tile to tile, which is so without gradients of parameters, nothing keeps a program:
    the device starts one as another ends, and many small ones on a multiprocessor hide each other's loads and barriers.
    16 elements a thread up to 512 columns and beside a residual, else 16 to 48. Programs that leave multiprocessors to
    other kernels take tiles in turn: these would fill all of them.
    """
    cols, residual = problem.cols, "dres" in problem.extras
    if problem.accumulators or gpu.sm_margin or not set(problem.extras) <= {"dres"} or (residual and cols > 4096):
        return None
    if cols <= 512:
        chunk = min(power_of_two(cols), 64)
        chunks = -(-cols // chunk)
        tile_rows = max(1, floor_power_of_two(2048 // (chunks * chunk)))
        return Tile(tile_rows, chunks, chunk, 4, problem.rows, fold=False, stages=1)
    if residual:
        warps = 2 if cols <= 1024 else 4 if cols <= 2048 else 8
    else:
        warps = 1 if cols <= 1024 else 2 if cols <= 2048 else 4 if cols <= 5120 else 8
    chunk = 256 * warps
    return Tile(1, -(-cols // chunk), chunk, warps, problem.rows, fold=True, stages=1)


def narrow(problem: Problem, gpu: GpuLimits) -> Tile:
    """Rows across lanes and warps, so that no row sum leaves its warp and no iteration has a barrier.

    Chunks of 64 columns put a row of 16-bit elements on 8 lanes; narrower rows waste fewer lanes past their end that
    way. 32 elements a thread are in use, half where that leaves fewer than 4 turns: more would not fit beside the
    accumulators. Where turns are few, and up to 256 columns they seldom are many, every group of 8 lanes with partials
    of its own to add up at the end counts: one program a multiprocessor has half, and one more tile in flight makes up
    for it.
    """
    chunk = min(power_of_two(problem.cols), 64)
    chunks = -(-problem.cols // chunk)
    tile_rows = min(256, floor_power_of_two(4096 // (chunks * chunk)))
    if problem.row_tensors_kept > 2:
        tile_rows //= 2  # the registers that a second norm or a gate takes
    if problem.rows < 4 * gpu.multiprocessors * tile_rows:
        tile_rows //= 2
    turns = 48 if problem.cols <= 256 else 16
    alone = problem.rows <= turns * gpu.multiprocessors * tile_rows
    programs = gpu.multiprocessors * (1 if alone else 2)
    return Tile(tile_rows, chunks, chunk, 4, programs, fold=False, stages=STAGES + alone)


def flat(problem: Problem, gpu: GpuLimits) -> Tile:
    """Warps side by side along the row, each thread with 8 consecutive columns of every chunk.

    4 warps up to 2048 columns, where that covers the row with fewer idle lanes, and up to 4096 where there are rows for
    16 turns; else 8; at most 40 elements a thread, 48 of a light one. Two programs a multiprocessor hide each other's
    barriers; one leaves half as many partials, which counts where turns are few. At 2048 columns a light one has a tile
    twice as large then, 64 elements a thread. Light ones are packed up to 4096 columns, and above 8192 where a row ends
    inside its last chunk, as the masks take registers; others with two accumulators from 4097 to 5120 columns, and
    above 7168 where there are rows for 12 turns. With 8 warps one more tile in flight helps up to 8192 columns. Below
    1024 columns others have 2 warps, which wait for each other less, and four programs; and up to 1408, where three
    chunks of 2 warps have fewer idle lanes than two of 4. Rows of many alignments below 1024 columns have 4 warps, as
    pointers to them take registers. From 15 turns of more than 6144 columns on fewer programs than multiprocessors are
    as fast, if unpacked, but for light ones. From 16 turns on a tile of fp32 has half as many rows, which are the bytes
    of a 16-bit one, and where it is one row there is one program a multiprocessor.

    Another kernel may hold multiprocessors. All programs still run at once if each of the others has room for more
    than its share of them. So where the kernel needs no more, registers are limited to leave room for half as many
    programs again; it needs more where rows come in smaller pieces than 16 bytes. And one program of 4 warps is taken
    where it is as fast as two, or as one of 8 warps: with as many registers as a thread can have, it takes half of a
    multiprocessor's.
    """
    rows, cols, light = problem.rows, problem.cols, is_light(problem, gpu)
    if cols < 1024 and not light and gpu.ptx and problem.item_bytes == 2:
        if problem.alignments > 1:
            return Tile(4, 1, 1024, 4, 2 * gpu.multiprocessors, fold=True, packed=problem.weight_bytes <= 2)
        maxnreg = _registers(5, 2) if _in_full_loads(problem) else None
        return Tile(2, 2, 512, 2, 4 * gpu.multiprocessors, fold=True, maxnreg=maxnreg)
    if 1024 < cols <= 1408 and not light and gpu.ptx and problem.item_bytes == 2 and not problem.extras:
        return Tile(1, -(-cols // 512), 512, 2, 4 * gpu.multiprocessors, fold=True)
    half = _half(problem, gpu)
    if half is not None:
        return half
    long = _long(problem, gpu)
    aligned = problem.alignments == 1 or light  # else pointers to rows take the registers of wider chunks
    narrower = _padded(cols, 4) < _padded(cols, 8) and cols <= (5120 if aligned else 4096)
    warps = 4 if cols <= 2048 or narrower or (cols <= 4096 and long) else 8
    chunk = 256 * warps
    chunks = -(-cols // chunk)
    large = light and warps == 4 and chunks == 2 and not long
    tile_rows = max(1, floor_power_of_two((2048 if large else 1024) * warps // (chunks * chunk)))
    halved = problem.item_bytes == 4 and rows >= 16 * 2 * gpu.multiprocessors * tile_rows
    alone = warps == 8 or large or (halved and tile_rows == 1) or rows <= 4 * gpu.multiprocessors * tile_rows
    tile_rows = max(1, tile_rows // 2) if halved else tile_rows
    packed = _packed(problem, gpu)
    programs = gpu.multiprocessors * (1 if alone else 2)
    if not light and not packed and not problem.extras and cols > 6144 and rows >= 15 * gpu.multiprocessors:
        programs = max(1, gpu.multiprocessors * 15 // 16)
    stages = STAGES + (warps == 8 and cols <= 8192 and not (packed and light) and not problem.extras)
    maxnreg = None
    if gpu.ptx and problem.item_bytes == 2 and not problem.extras and _in_full_loads(problem):
        room = (packed and cols <= 4096) or cols <= 1024 or (cols <= 2048 and long)
        if room and not (alone and warps == 4):
            maxnreg = _registers(3 if warps == 4 else 2, warps)
    return Tile(tile_rows, chunks, chunk, warps, programs, fold=True, packed=packed, maxnreg=maxnreg, stages=stages)


def _packed(problem: Problem, gpu: GpuLimits) -> bool:
    """Whether a flat tile is kept in 16 bits across the row sums."""
    cols = problem.cols
    if is_light(problem, gpu):
        return cols <= 4096 or (cols > 8192 and cols % 2048 > 0)
    packable = gpu.ptx and problem.item_bytes == 2 and problem.weight_bytes <= 2
    wide = cols > 7168 and problem.rows >= 12 * gpu.multiprocessors
    narrower = 4096 < cols <= 5120 and problem.alignments == 1
    return packable and problem.accumulators == 2 and not problem.extras and (wide or narrower)


def _in_full_loads(problem: Problem) -> bool:
    """Whether a thread reads 16 bytes of a row at once, of 16-bit numbers."""
    return problem.in_pairs and problem.cols % 8 == 0


def _half(problem: Problem, gpu: GpuLimits) -> Tile | None:
    """One program of 4 warps a multiprocessor, which takes half of it; None where others are faster.

    With three tiles in flight, packed in 16 bits: in RMSNorm at 4097 to 8192 columns. Unpacked in LayerNorm at 5120
    columns, and with four up to 4096, where there are many rows or a residual, for which one tile fewer is in flight.
    """
    if problem.item_bytes != 2 or not gpu.ptx or problem.alignments > 1:
        return None
    cols, full = problem.cols, problem.cols % 1024 == 0
    chunks, two = -(-cols // 1024), problem.accumulators == 2
    rms = is_light(problem, gpu) and problem.norm == "rms" and not problem.extras
    if rms and 4096 < cols <= (8192 if full else 7168):  # at 8 chunks of which one ends the row registers spill
        stages = STAGES + (full or cols < 5120)  # one more comes where a row ends inside its last chunk
        launch = Tile(1, chunks, 1024, 4, gpu.multiprocessors, fold=True, packed=True, stages=stages)
    elif two and cols == 5120 and problem.weight_bytes <= 2 and not problem.extras:
        launch = Tile(1, chunks, 1024, 4, gpu.multiprocessors, fold=True, stages=STAGES + 1)
    elif two and 3072 < cols <= 4096 and (problem.extras or _long(problem, gpu)):
        launch = Tile(1, chunks, 1024, 4, gpu.multiprocessors, fold=True, stages=STAGES + 2 - len(problem.extras))
    else:
        return None
    buffers = (launch.stages - 1) * launch.chunks * launch.cols * problem.read_bytes
    return launch if 2 * (buffers + RESERVED_BYTES) <= gpu.shared_total else None


def flat_of_many(problem: Problem, gpu: GpuLimits) -> Tile:
    """A flat tile where more than a residual is read beside x and dy: 16 to 32 elements a thread.

    Two norms have a tile twice as large where a row is one chunk and nothing else is beside them, and one more tile in
    flight where it is two. RMSNorm with a gate has 4 warps up to 2048 columns, and two programs, and two of 8 warps up
    to 4096. Up to two chunks are packed in 16 bits, but for those of 4 warps. Three are not: packed, they spilled more
    registers on sm_100. A gate is read twice where holding it would take more than 128 registers; elsewhere that is
    slower.
    """
    rows, cols = problem.rows, problem.cols
    two, gate = "dy1" in problem.extras, "z" in problem.extras and problem.accumulators == 1
    warps = 4 if cols <= (2048 if gate else 1024) else 8 if cols <= 6144 else 16
    chunk = 256 * warps
    chunks = -(-cols // chunk)
    large = two and len(problem.extras) == 1 and warps == 8 and chunks == 1 and problem.item_bytes == 2
    tile_rows = max(1, floor_power_of_two((1024 if large else 512) * warps // (chunks * chunk)))
    packed = gpu.ptx and problem.item_bytes == 2 and problem.weight_bytes <= 2
    packed = packed and not large and chunks <= (1 if gate and warps == 4 else 2)
    few_turns = rows <= 4 * gpu.multiprocessors * tile_rows
    pair = gate and warps == 8 and chunks <= 2 and gpu.ptx and not few_turns
    programs = gpu.multiprocessors * (1 if few_turns or (warps > 4 and not pair) else 2)
    limited = pair or (warps > FEWEST_WARPS and gpu.ptx)
    return Tile(
        tile_rows,
        chunks,
        chunk,
        warps,
        programs,
        fold=True,
        packed=packed,
        reread=pair or ("z" in problem.extras and warps == 16),
        maxnreg=_registers(2 if pair else 1, warps) if limited else None,
        stages=STAGES + (two and warps == 8 and chunks == 2),
    )


def _long(problem: Problem, gpu: GpuLimits) -> bool:
    """Whether there are rows for 16 turns of two programs a multiprocessor."""
    return problem.rows >= 16 * 2 * gpu.multiprocessors


def _registers(programs: int, warps: int) -> int:
    """Registers of a thread with so many programs on a multiprocessor."""
    return REGISTERS // (32 * warps * programs) // 8 * 8


def _padded(cols: int, warps: int) -> int:
    """Columns of a flat tile of so many warps."""
    return -(-cols // (256 * warps)) * 256 * warps
