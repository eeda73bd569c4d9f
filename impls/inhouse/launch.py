"""How a norm backward is cut into programs: the regimes by width, and the reason for each constant.

Chosen from the shape, the dtypes and what the device has, never from its name, and without measuring anything: the same
case on the same device always runs the same programs, which is what makes the gradients reproducible.
"""

from __future__ import annotations

from dataclasses import replace

from .kinds import PART_BYTES, STAGES, FewRows, Launch, OnePass, Shared, TwoPass
from .problem import Gpu, Problem

WIDEST = 131072  # a row of 128 Ki elements; wider is refused rather than left untested
MOST_HELD = 18432  # columns of a row that one program holds where rows are few: 36 elements a thread, 16 warps
MOST_PARTS = 64  # of a row: an exchange looks at no more
RESERVED_BYTES = 1024  # of shared memory that the device keeps for each program
SUM_BYTES = 4096  # beside a program's tiles, for row sums that cross between warps


def choose(problem: Problem, gpu: Gpu) -> Launch:
    """Choose the launch for a problem on such a device."""
    return few_rows(problem, gpu) if problem.rows <= _few(problem, gpu) else many_rows(problem, gpu)


def _few(problem: Problem, gpu: Gpu) -> int:
    """How many rows are few: two a multiprocessor, where another launch would have one program wait for all.

    Nobody waits then and nothing is added up twice, which is worth a second reading. Above 8192 columns the gradients
    of columns cross between 8 warps and more. That still pays where rows cannot be shared and three launches would
    take their place, and for RMSNorm with fewer rows.
    """
    if problem.cols <= 8192 or (problem.cols <= MOST_HELD and not problem.by_words):
        return 2 * gpu.multiprocessors
    if problem.norm == "rms" and problem.accumulators <= 1 and problem.cols <= 16384:
        return gpu.multiprocessors // 2
    return 0


def few_rows(problem: Problem, gpu: Gpu) -> FewRows:
    """The launch in which some programs own a row and others own columns, up to MOST_HELD columns.

    A row is at most 64 elements a thread, 36 where it comes one element at a time. Where columns have more than 3
    turns, tiles are in flight.
    """
    if problem.cols <= 8192:
        warps, chunk, rows, cols = 4, 1024, 64, 32
    elif problem.by_words:
        warps, chunk, rows, cols = 8, 2048, 64, 64
    else:
        warps, chunk, rows, cols = 16, 2048, 64 if problem.rows <= 64 else 128, 64
    chunk = min(power_of_two(problem.cols), chunk)
    turns = -(-problem.rows // rows)
    stages = _stages(few_bytes(rows, cols, problem.item_bytes), gpu, STAGES) if turns > STAGES else 1
    chunks = -(-problem.cols // chunk)
    return FewRows(rows, cols, chunks, chunk, warps, stages, few_registers(problem, gpu, chunks * chunk, warps))


def few_registers(problem: Problem, gpu: Gpu, held: int, warps: int) -> int | None:
    """Registers of a thread where so many columns of a row are held; None is what the compiler likes.

    With 32 elements a thread NVIDIA's likes 72, for room for more programs than there are, and sets two aside for that.
    """
    return 128 if gpu.ptx and held == problem.cols == 32 * 32 * warps else None


def few_bytes(rows: int, cols: int, item_bytes: int) -> int:
    """Bytes of shared memory of a tile of rows that lie above each other: x and dy, mean and rstd."""
    return 2 * rows * (cols * item_bytes + 4)


def many_rows(problem: Problem, gpu: Gpu) -> Launch:
    """The launch in which programs own many rows each."""
    rows, cols, item_bytes = problem.rows, problem.cols, problem.item_bytes
    single = problem.accumulators <= 1  # so that registers are left
    light = item_bytes == 2 and problem.weight_bytes <= 2 and single and gpu.ptx  # can be packed, and is worth it
    if cols <= 512:
        launch = _narrow(rows, cols, gpu)
    elif cols <= (12288 if light else 8192):
        launch = _flat(rows, cols, light, gpu)
    elif problem.by_words and _may_share(cols, item_bytes, gpu):
        return _shared(rows, cols, item_bytes, gpu)
    else:
        return two_pass(rows, cols, item_bytes, gpu)
    return _fit(launch, rows, cols, item_bytes, gpu)


def _narrow(rows: int, cols: int, gpu: Gpu) -> OnePass:
    """Rows across lanes and warps, so that no row sum leaves its warp and no iteration has a barrier.

    Chunks of 64 columns put a row of 16-bit elements on 8 lanes; narrower rows waste fewer lanes past their end that
    way. 32 elements a thread are in use, half where that leaves fewer than 4 turns: more would not fit beside the
    accumulators. Up to 256 columns, and where turns are few, every group of 8 lanes with partials of its own to add up
    at the end counts: one program a multiprocessor has half, and one more tile in flight makes up for it.
    """
    chunk = min(power_of_two(cols), 64)
    chunks = -(-cols // chunk)
    tile_rows = min(256, floor_power_of_two(4096 // (chunks * chunk)))
    if rows < 4 * gpu.multiprocessors * tile_rows:
        tile_rows //= 2
    alone = cols <= 256 or rows <= 16 * gpu.multiprocessors * tile_rows
    programs = gpu.multiprocessors * (1 if alone else 2)
    return OnePass(tile_rows, chunks, chunk, 4, programs, fold=False, stages=STAGES + alone)


def _flat(rows: int, cols: int, light: bool, gpu: Gpu) -> OnePass:
    """Warps side by side along the row, each thread with 8 consecutive columns of every chunk.

    4 warps up to 2048 columns, where that covers the row with fewer idle lanes, and up to 4096 where there are rows for
    16 turns; else 8; at most 40 elements a thread, 48 of a light one. Two programs a multiprocessor hide each other's
    barriers; one leaves half as many partials, which counts where turns are few. At 2048 columns a light one has a tile
    twice as large instead, 64 elements a thread; up to 4096 the others are packed. With 8 warps and nothing packed one
    more tile in flight helps up to 8192 columns.
    """
    long = rows >= 16 * 2 * gpu.multiprocessors
    narrower = _padded(cols, 4) < _padded(cols, 8) and cols <= 5120
    warps = 4 if cols <= 2048 or narrower or (cols <= 4096 and long) else 8
    chunk = 256 * warps
    chunks = -(-cols // chunk)
    large = light and warps == 4 and chunks == 2
    tile_rows = max(1, floor_power_of_two((2048 if large else 1024) * warps // (chunks * chunk)))
    alone = warps == 8 or large or rows <= 4 * gpu.multiprocessors * tile_rows
    packed = light and cols <= 4096 and not large
    programs = gpu.multiprocessors * (1 if alone else 2)
    stages = STAGES + (warps == 8 and cols <= 8192 and not packed)
    return OnePass(tile_rows, chunks, chunk, warps, programs, fold=True, packed=packed, stages=stages)


def _may_share(cols: int, item_bytes: int, gpu: Gpu) -> bool:
    """Whether all programs of a row are on the device at once, and one of them fits a multiprocessor."""
    part = _part(item_bytes)
    fits = parts_bytes(2, part, item_bytes) <= gpu.shared_bytes
    return gpu.ptx and fits and -(-cols // part) <= min(MOST_PARTS, gpu.multiprocessors)


def _part(item_bytes: int) -> int:
    """Columns of a program that shares rows."""
    return PART_BYTES // item_bytes


def _shared(rows: int, cols: int, item_bytes: int, gpu: Gpu) -> Shared:
    """Rows that do not fit: 4 KiB a program, two rows a tile, each sum in one trip for both.

    From 8 turns on three programs on a multiprocessor with four tiles each: two that wait for their sums, so that
    nobody waits for the others', one at work and one under way. Where shared memory has no room for that, and with few
    turns, of which a tile more that waits would be one more, as many programs as hold three tiles each, at most four.
    With three turns and fewer two at most: they have twice the turns, and half as many partials to add up at the end,
    which is then more than is lost. Beyond 32 programs a row the words of two rows would be more loads than they save.
    """
    part = _part(item_bytes)
    parts = -(-cols // part)
    tile_rows = 2 if parts <= 32 else 1
    tiles = -(-rows // tile_rows)
    room = {
        stages: gpu.shared_total // (parts_bytes(tile_rows, part, item_bytes, stages) + RESERVED_BYTES)
        for stages in (STAGES, STAGES + 1)
    }
    if tiles >= 8 * (3 * gpu.multiprocessors // parts) and room[STAGES + 1] >= 3:
        residents, delay, stages = 3, 2, STAGES + 1
    else:
        most = 4 if tiles > 3 * (4 * gpu.multiprocessors // parts) else 2
        residents, delay, stages = max(1, min(most, room[STAGES])), 1, STAGES
    groups = _evenly(tiles, residents * gpu.multiprocessors // parts)
    maxnreg = shared_registers(residents)
    return Shared(tile_rows, parts, groups, delay, residents, maxnreg, part, stages=stages)


def shared_registers(residents: int) -> int:
    """Registers of a thread where so many programs of 4 warps share a multiprocessor.

    Always said: left to itself the compiler may take 96 for two, and set some aside.
    """
    return min(248, 512 // residents // 8 * 8)


def parts_bytes(rows: int, cols: int, item_bytes: int, stages: int = STAGES) -> int:
    """Bytes of shared memory of a program that shares rows: x and dy of `stages` tiles, and a little for sums."""
    return 2 * item_bytes * rows * cols * stages + 512


def two_pass(rows: int, cols: int, item_bytes: int, gpu: Gpu) -> TwoPass:
    """What is left: tiles of 4 x 1024, 32 elements a thread, no row sums, so 4 programs a multiprocessor."""
    tile_cols = 1024
    tile_rows = 4 if item_bytes == 2 else 2  # the same bytes in flight, and the same registers
    column_tiles = -(-cols // tile_cols)
    groups = max(1, min(4 * gpu.multiprocessors // column_tiles, -(-rows // tile_rows)))
    stages = _stages(4096 * (2 * item_bytes + 4), gpu, STAGES)  # x, dy and weight in `row_sums`, the larger of the two
    return TwoPass(tile_rows, tile_cols, 4, groups, stages=stages)


def _fit(launch: OnePass, rows: int, cols: int, item_bytes: int, gpu: Gpu) -> OnePass:
    """As many tiles in flight as fit in shared memory, and tiles dealt out evenly.

    A row that ends inside its last chunk has fewer bytes in flight than lanes, so that it has one more tile there. The
    programs add their partials up themselves where they may wait for each other, which all have to be resident for.
    """
    tile_bytes = 2 * launch.rows * launch.chunks * launch.cols * item_bytes
    residents = max(1, launch.programs // gpu.multiprocessors)
    room = min(gpu.shared_bytes, gpu.shared_total // residents - RESERVED_BYTES)
    stages = _stages(tile_bytes, replace(gpu, shared_bytes=room), launch.stages + (launch.chunks * launch.cols != cols))
    programs = _evenly(-(-rows // launch.rows), launch.programs)
    return replace(launch, programs=programs, stages=stages, fused=gpu.ptx)


def dealt(launch: Launch, rows: int, gpu: Gpu, residents: int | None = None) -> Launch:
    """The same launch for so many rows: its tiles dealt out evenly to `residents` programs a multiprocessor.

    By default to as many as it has.
    """
    tiles = -(-rows // launch.rows)
    if isinstance(launch, FewRows):
        return launch
    if isinstance(launch, OnePass):
        each = residents or -(-launch.programs // gpu.multiprocessors)
        return replace(launch, programs=_evenly(tiles, each * gpu.multiprocessors))
    if isinstance(launch, Shared):
        each = residents or launch.residents
        return replace(launch, groups=_evenly(tiles, max(1, each * gpu.multiprocessors // launch.parts)))
    return replace(launch, groups=max(1, min(launch.groups, tiles)))


def _evenly(tiles: int, most: int) -> int:
    """Programs, at most `most`, of which each gets as many tiles as the busiest would: fewer finish no later."""
    turns = max(1, -(-tiles // most))
    return max(1, -(-tiles // turns))


def _stages(tile_bytes: int, gpu: Gpu, wanted: int) -> int:
    """The most stages up to `wanted` whose buffers fit beside SUM_BYTES; less than STAGES gains nothing."""
    fitting = (gpu.shared_bytes - SUM_BYTES) // tile_bytes + 1
    return min(wanted, fitting) if fitting >= STAGES else 1


def _padded(cols: int, warps: int) -> int:
    return -(-cols // (256 * warps)) * 256 * warps


def power_of_two(number: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << (number - 1).bit_length()


def floor_power_of_two(number: int) -> int:
    """The largest power of two that is no more; 1 for less than that."""
    return 1 << max(0, number.bit_length() - 1)
