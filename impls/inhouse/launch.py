"""How a norm backward is cut into programs: the regimes by width, and the reason for each constant.

Chosen from the shape, the dtypes and what the device has, never from its name, and without measuring anything: the same
case on the same device always runs the same programs, which is what makes the gradients reproducible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

WIDEST = 65536  # a row of 64 Ki elements; wider is refused rather than left untested
STAGES = 3  # two buffers: a tile arrives while another is used; with 2 Triton makes one, and nothing overlaps


@dataclass(frozen=True)
class Gpu:
    """What the choice may depend on; a CPU in Triton's interpreter looks like a tiny one."""

    multiprocessors: int = 4
    shared_bytes: int = 96 * 1024  # the most that one program may have
    pdl: bool = False  # programmatic dependent launch: NVIDIA, sm_90 and later
    ptx: bool = False  # understands the one line of PTX that `PACKED` needs


@dataclass(frozen=True)
class OnePass:
    """`backward_rows`: tiles of `rows` rows, each `chunks` x `cols` columns, which `programs` programs take in turn."""

    rows: int
    chunks: int
    cols: int
    warps: int
    programs: int
    fold: bool
    packed: bool = False
    stages: int = STAGES
    maxnreg: int | None = None
    pdl: bool = False


@dataclass(frozen=True)
class TwoPass:
    """`row_sums` in chunks of `sum_cols`; `backward_columns` in tiles of `rows` x `cols`, `groups` a column."""

    rows: int
    cols: int
    warps: int
    groups: int
    sum_cols: int = 4096
    sum_warps: int = 8
    stages: int = STAGES
    pdl: bool = False


Launch = OnePass | TwoPass


def choose(rows: int, cols: int, *, item_bytes: int, weight_bytes: int, accumulators: int, gpu: Gpu) -> Launch:
    """Choose the launch for x `(rows, cols)`.

    `item_bytes` is the size of an element of x, `weight_bytes` that of weight (0 without), and `accumulators` the
    number of parameter gradients (0 to 2), each of which costs a register for every column that a thread holds.
    """
    light = item_bytes == 2 and weight_bytes <= 2 and accumulators <= 1 and gpu.ptx  # can be packed, and is worth it
    if cols < 1024:
        launch = _narrow(cols, gpu)
    elif cols <= 8192:
        launch = _flat(cols, light, gpu)
    elif cols <= 16384 and light:
        launch = _full(cols, gpu)
    else:
        return _two_pass(rows, cols, item_bytes, gpu)
    return _fit(launch, rows, cols, item_bytes, gpu)


def _narrow(cols: int, gpu: Gpu) -> OnePass:
    """Rows across lanes and warps, so that no row sum leaves its warp and no iteration has a barrier.

    Chunks of 64 columns put a row of 16-bit elements on 8 lanes, of 256 on 32; narrower rows waste fewer lanes past
    their end that way. 24 to 32 elements a thread are in use: more would not fit beside the accumulators. Up to 256
    columns every group of 8 lanes has partials of its own to add up at the end: one program a multiprocessor has half.
    """
    chunk = min(power_of_two(cols), 64 if cols <= 512 else 256)
    chunks = -(-cols // chunk)
    rows = min(256, floor_power_of_two(4096 // (chunks * chunk)))
    programs = gpu.multiprocessors * (1 if cols <= 256 else 2)
    return OnePass(rows, chunks, chunk, 4, programs, fold=False, pdl=gpu.pdl)


def _flat(cols: int, light: bool, gpu: Gpu) -> OnePass:
    """Warps side by side along the row, each thread with 8 consecutive columns of every chunk.

    4 warps where that covers the row with fewer idle lanes (and up to 2048 columns), else 8; at most 40 elements a
    thread. Two programs on a multiprocessor hide each other's barriers while partial gradients are cheap; with 8 warps,
    one program with a tile twice as large leaves `finish` half as many partials to read. So does a light one at 2048
    columns, whose single accumulator leaves room for 64 elements a thread. The other light ones are packed.
    """
    warps = 4 if cols <= 2048 or (_padded(cols, 4) < _padded(cols, 8) and cols <= 5120) else 8
    chunk = 256 * warps
    chunks = -(-cols // chunk)
    alone = warps == 8 or (light and chunks == 2)
    rows = max(1, floor_power_of_two((2048 if alone and warps == 4 else 1024) * warps // (chunks * chunk)))
    packed = light and cols <= 4096 and not (alone and warps == 4)
    programs = gpu.multiprocessors * (1 if alone else 2)
    return OnePass(rows, chunks, chunk, warps, programs, fold=True, packed=packed, pdl=gpu.pdl)


def _full(cols: int, gpu: Gpu) -> OnePass:
    """One row fills a multiprocessor: 16 warps at the 128 registers that leaves each thread.

    Three packed chunks of 4096 fit without a spill. A whole row of 16384 does not fit in any form; as one chunk, not
    packed, it sets the fewest registers aside.
    """
    chunks, chunk, packed = (-(-cols // 4096), 4096, True) if cols <= 12288 else (1, 16384, False)
    return OnePass(1, chunks, chunk, 16, gpu.multiprocessors, fold=True, packed=packed, maxnreg=128, pdl=gpu.pdl)


def _two_pass(rows: int, cols: int, item_bytes: int, gpu: Gpu) -> TwoPass:
    """Rows that do not fit: tiles of 4 x 1024, 32 elements a thread, no row sums, so 4 programs a multiprocessor.

    Without programmatic dependent launch: it costs time here, perhaps because waiting successors take up the room.
    """
    tile_cols = 1024
    tile_rows = 4 if item_bytes == 2 else 2  # the same bytes in flight, and the same registers
    column_tiles = -(-cols // tile_cols)
    groups = max(1, min(4 * gpu.multiprocessors // column_tiles, -(-rows // tile_rows)))
    stages = _stages(4096 * (2 * item_bytes + 4), gpu)  # x, dy and weight in `row_sums`, the larger of the two
    return TwoPass(tile_rows, tile_cols, 4, groups, stages=stages)


def _fit(launch: OnePass, rows: int, cols: int, item_bytes: int, gpu: Gpu) -> OnePass:
    """No more programs than tiles, and as many tiles in flight as fit in shared memory.

    A row that ends inside its last chunk has fewer bytes in flight than lanes, so that it has one more tile there.
    """
    wanted = STAGES + (launch.chunks * launch.cols != cols)
    stages = _stages(2 * launch.rows * launch.chunks * launch.cols * item_bytes, gpu, wanted)
    programs = max(1, min(launch.programs, -(-rows // launch.rows)))
    return replace(launch, programs=programs, stages=stages)


def _stages(tile_bytes: int, gpu: Gpu, wanted: int = STAGES) -> int:
    """The most stages up to `wanted` whose buffers fit beside 4 KiB for row sums; less than STAGES gains nothing."""
    fitting = (gpu.shared_bytes - 4096) // tile_bytes + 1
    return min(wanted, fitting) if fitting >= STAGES else 1


def _padded(cols: int, warps: int) -> int:
    return -(-cols // (256 * warps)) * 256 * warps


def power_of_two(number: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << (number - 1).bit_length()


def floor_power_of_two(number: int) -> int:
    """The largest power of two that is no more; 1 for less than that."""
    return 1 << max(0, number.bit_length() - 1)
