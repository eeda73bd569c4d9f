"""The tiles of one pass, as tables: which shape, and how many programs, warps and registers take them.

The first row of a table whose condition holds gives the value. `measured` names the file of results/h200 that has the
shapes of a row, or `script` where a script chose it and no published file tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class Asked(NamedTuple):
    """A problem on a device, with what the conditions of a table ask."""

    problem: Problem
    gpu: GpuLimits

    def __getattr__(self, name: str) -> Any:
        return ANSWERS[name](self)

    def turns(self, rows: int) -> bool:
        """Whether there are as many rows as this for each multiprocessor."""
        return self.problem.rows >= rows * self.gpu.multiprocessors

    def padded(self, warps: int) -> int:
        """Columns of a flat tile of so many warps."""
        return -(-self.cols // (256 * warps)) * 256 * warps


ANSWERS: dict[str, Callable[[Asked], Any]] = {
    "cols": lambda a: a.problem.cols,
    "plain": lambda a: not a.problem.extras,  # nothing is read besides x and dy
    "is_16_bit": lambda a: a.problem.item_bytes == 2 and a.gpu.ptx,
    "packable": lambda a: a.is_16_bit and a.problem.weight_bytes <= 2,
    "light": lambda a: a.packable and a.problem.accumulators <= 1,  # registers are left that make packing worth while
    "aligned": lambda a: a.problem.alignments == 1 or a.light,  # pointers to rows take few registers
    "full_loads": lambda a: a.problem.in_pairs and a.cols % 8 == 0,  # 16 bytes of 16-bit numbers at once
    "long": lambda a: a.turns(16 * 2),  # 16 turns of two programs a multiprocessor
    # With more than 64 to 90 KiB in flight calls in a row then take 4 to 11 % longer, and one alone at most 2 % less.
    "sustained": lambda a: a.packable and a.cols > 6144 and a.turns(40),
}


class Row(NamedTuple):
    """A row of a table: the value where `when` holds, and where that was measured."""

    when: Callable[[Asked], bool]
    value: Any
    measured: str


def first(table: tuple[Row, ...], asked: Asked, otherwise: Any) -> Any:
    """The value of the first row whose condition holds."""
    return next((row.value for row in table if row.when(asked)), otherwise)


# ------------------------------------------------------------------------------------------------ a tile a program

# Nothing is carried from tile to tile where parameters have no gradients, so the device starts a program as another
# ends: many small ones on a multiprocessor hide each other's loads and barriers. Warps by the width of a row:
ONE_EACH_WARPS = (
    Row(lambda a: a.cols <= 1024, 1, "models"),
    Row(lambda a: a.cols <= 2048, 2, "models"),
    Row(lambda a: a.cols <= 5120, 4, "models"),
)
ONE_EACH_WARPS_WITH_RESIDUAL = (Row(lambda a: a.cols <= 1024, 2, "script"), Row(lambda a: a.cols <= 2048, 4, "script"))


def one_each(problem: Problem, gpu: GpuLimits) -> Tile | None:
    """A tile for programs that take one each; None where programs take many in turn.

    Programs that leave multiprocessors to other kernels take tiles in turn: these would fill all of them.
    """
    cols, residual = problem.cols, "dres" in problem.extras
    if problem.accumulators or gpu.sm_margin or not set(problem.extras) <= {"dres"} or (residual and cols > 4096):
        return None
    if cols <= 512:
        chunk = min(power_of_two(cols), 64)
        chunks = -(-cols // chunk)
        tile_rows = max(1, floor_power_of_two(2048 // (chunks * chunk)))
        return Tile(tile_rows, chunks, chunk, 4, problem.rows, fold=False, stages=1)
    warps = first(ONE_EACH_WARPS_WITH_RESIDUAL if residual else ONE_EACH_WARPS, Asked(problem, gpu), 8)
    return Tile(1, -(-cols // (256 * warps)), 256 * warps, warps, problem.rows, fold=True, stages=1)


# ------------------------------------------------------------------------------------------------ up to 512 columns


def narrow(problem: Problem, gpu: GpuLimits) -> Tile:
    """Rows across lanes and warps, so that no row sum leaves its warp and no iteration has a barrier.

    Chunks of 64 columns put a row of 16-bit elements on 8 lanes. 32 elements a thread are in use, half where a second
    norm or a gate takes registers, and half where that leaves fewer than 4 turns. Where turns are few, every group of 8
    lanes with partials of its own counts: then one program a multiprocessor has one more tile in flight.
    """
    chunk = min(power_of_two(problem.cols), 64)
    chunks = -(-problem.cols // chunk)
    tile_rows = min(256, floor_power_of_two(4096 // (chunks * chunk)))
    if problem.row_tensors_kept > 2:
        tile_rows //= 2
    if problem.rows < 4 * gpu.multiprocessors * tile_rows:
        tile_rows //= 2
    turns = 48 if problem.cols <= 256 else 16
    alone = problem.rows <= turns * gpu.multiprocessors * tile_rows
    programs = gpu.multiprocessors * (1 if alone else 2)
    return Tile(tile_rows, chunks, chunk, 4, programs, fold=False, stages=STAGES + alone)


# ------------------------------------------------------------------------------------------------ flat tiles


class Whole(NamedTuple):
    """A flat tile that a table has whole: its rows, warps, programs a multiprocessor, and the rest of `Tile`."""

    rows: int
    warps: int
    programs: int
    packed: bool = False
    stages: int = STAGES
    limited_to: int | None = None  # programs that registers are limited for, where a thread reads 16 bytes at once


def _short(a: Asked) -> bool:
    return a.cols < 1024 and a.is_16_bit and not a.light


def _half(a: Asked, accumulators: int) -> bool:
    return a.is_16_bit and a.problem.alignments == 1 and a.problem.accumulators == accumulators


def _half_rms(a: Asked, most: int) -> bool:
    return a.light and a.problem.norm == "rms" and a.plain and a.problem.alignments == 1 and 4096 < a.cols <= most


# Below 1024 columns 2 warps wait for each other less, but pointers to rows of many alignments take registers. Up to
# 1408 three chunks of 2 warps have fewer idle lanes than two of 4.
SHORT_TILES = (
    Row(lambda a: _short(a) and a.problem.alignments > 1 and a.packable, Whole(4, 4, 2, packed=True), "script"),
    Row(lambda a: _short(a) and a.problem.alignments > 1, Whole(4, 4, 2), "script"),
    Row(_short, Whole(2, 2, 4, limited_to=5), "models"),
    Row(lambda a: 1024 < a.cols <= 1408 and a.is_16_bit and a.plain, Whole(1, 2, 4), "script"),
)
# One program of 4 warps takes half of a multiprocessor, with as many registers as a thread can have, and so finds room
# beside a competing kernel. At 8 chunks of which one ends the row registers spill.
HALF_TILES = (
    Row(lambda a: _half_rms(a, 8192) and a.cols % 1024 == 0 and a.sustained, Whole(1, 4, 1, True), "script"),
    Row(lambda a: _half_rms(a, 8192) and a.cols % 1024 == 0, Whole(1, 4, 1, True, STAGES + 1), "fast-llm"),
    Row(lambda a: _half_rms(a, 5119), Whole(1, 4, 1, True, STAGES + 1), "script"),
    Row(lambda a: _half_rms(a, 7168), Whole(1, 4, 1, True), "fast-llm-all"),
    Row(lambda a: _half(a, 2) and a.cols == 5120 and a.packable and a.plain, Whole(1, 4, 1, False, 4), "fast-llm-all"),
    Row(lambda a: _half(a, 2) and 3072 < a.cols <= 4096 and a.plain and a.long, Whole(1, 4, 1, False, 5), "llm"),
    Row(lambda a: _half(a, 2) and 3072 < a.cols <= 4096 and not a.plain, Whole(1, 4, 1, False, 4), "residual"),
)
# 4 warps where they cover the row with fewer idle lanes, unless pointers take the registers of more chunks.
WARPS = (
    Row(lambda a: a.cols <= 2048, 4, "fast-llm"),
    Row(lambda a: a.padded(4) < a.padded(8) and a.cols <= (5120 if a.aligned else 4096), 4, "models"),
    Row(lambda a: a.cols <= 4096 and a.long and not a.light, 4, "llm"),
)
# Kept in 16 bits across the row sums. A row that ends inside its last chunk has masks, which take registers.
PACKED = (
    Row(lambda a: a.light and a.cols <= 4096, True, "fast-llm"),
    Row(lambda a: a.light and a.cols > 8192 and a.cols % 2048 > 0, True, "odd"),
    Row(lambda a: not (a.packable and a.plain and a.problem.accumulators == 2), False, "fast-llm"),
    Row(lambda a: a.cols > 7168 and a.turns(12), True, "fast-llm"),
    Row(lambda a: 4096 < a.cols <= 5120 and a.problem.alignments == 1, True, "script"),
)
# Whether the kernel can do with fewer registers, which leaves room for half as many programs again.
LIMITED = (
    Row(lambda a: not (a.is_16_bit and a.plain and a.full_loads), False, "contexts"),
    Row(lambda a: a.cols <= 1024 or (a.cols <= 2048 and a.long), True, "contexts"),
    Row(lambda a: a.cols <= 4096 and first(PACKED, a, False), True, "contexts"),
)


def flat(problem: Problem, gpu: GpuLimits) -> Tile:
    """Warps side by side along the row, each thread with 8 consecutive columns of every chunk.

    At most 40 elements a thread, 48 of a light one, 64 at 2048 columns. Two programs a multiprocessor hide each other's
    barriers; one leaves half as many partials, which counts where turns are few. With 8 warps one more tile in flight
    helps up to 8192 columns, unless calls are sustained. From 15 turns of more than 6144 columns on fewer programs than
    multiprocessors are as fast, if unpacked. From 16 turns on a tile of fp32 has the bytes of a 16-bit one.
    """
    asked = Asked(problem, gpu)
    whole = first(SHORT_TILES, asked, None)
    if whole is not None:
        return _from_table(whole, asked)
    half = first(HALF_TILES, asked, None)
    if half is not None:
        tile = _from_table(half, asked)
        buffers = (tile.stages - 1) * tile.chunks * tile.cols * problem.read_bytes
        if 2 * (buffers + RESERVED_BYTES) <= gpu.shared_total:
            return tile
    rows, cols, warps, packed = problem.rows, problem.cols, first(WARPS, asked, 8), first(PACKED, asked, False)
    chunk = 256 * warps
    chunks = -(-cols // chunk)
    large = asked.light and warps == 4 and chunks == 2 and not asked.long and problem.alignments == 1
    tile_rows = max(1, floor_power_of_two((2048 if large else 1024) * warps // (chunks * chunk)))
    halved = problem.item_bytes == 4 and asked.turns(16 * 2 * tile_rows)
    alone = warps == 8 or large or (halved and tile_rows == 1) or rows <= 4 * gpu.multiprocessors * tile_rows
    tile_rows = max(1, tile_rows // 2) if halved else tile_rows
    programs = gpu.multiprocessors * (1 if alone else 2)
    if not asked.light and not packed and asked.plain and cols > 6144 and asked.turns(15):
        programs = max(1, gpu.multiprocessors * 15 // 16)
    deeper = warps == 8 and cols <= 8192 and not (packed and asked.light) and not asked.sustained
    stages = STAGES + (deeper and asked.plain)
    limited = first(LIMITED, asked, False) and not (alone and warps == 4)
    maxnreg = _registers(3 if warps == 4 else 2, warps) if limited else None
    return Tile(tile_rows, chunks, chunk, warps, programs, fold=True, packed=packed, maxnreg=maxnreg, stages=stages)


def _from_table(whole: Whole, asked: Asked) -> Tile:
    chunk = 256 * whole.warps
    return Tile(
        whole.rows,
        -(-asked.cols // chunk),
        chunk,
        whole.warps,
        whole.programs * asked.gpu.multiprocessors,
        fold=True,
        packed=whole.packed,
        maxnreg=_registers(whole.limited_to, whole.warps) if whole.limited_to and asked.full_loads else None,
        stages=whole.stages,
    )


def flat_of_many(problem: Problem, gpu: GpuLimits) -> Tile:
    """A flat tile where more than a residual is read beside x and dy: 16 to 32 elements a thread.

    Two norms have a tile twice as large where a row is one chunk and nothing else is beside them, and one more tile in
    flight where it is two. RMSNorm with a gate has 4 warps up to 2048 columns, and two programs, and two of 8 warps up
    to 4096; with masks alone, from 8192 to 12288 columns, 8 warps, packed. LayerNorm with a gate has a tile twice as
    large up to 1024 columns, and one more in flight from 2048 to 4096. Up to two chunks are packed in 16 bits, but for
    those of 4 warps, and for LayerNorms with a gate: those of 8 warps, and those of 16 with the gate behind the norm,
    are faster unpacked; three chunks with it there, of which the last ends the row, are packed, as registers spill
    otherwise. A gate is read twice where holding it would take more than 128 registers; elsewhere that is slower.
    """
    rows, cols = problem.rows, problem.cols
    two, gate = "dy1" in problem.extras, "z" in problem.extras and problem.accumulators == 1
    packed = gpu.ptx and problem.item_bytes == 2 and problem.weight_bytes <= 2
    masked = packed and 8192 < cols <= 12288 and problem.accumulators == 1 and not {"dy1", "z"} & {*problem.extras}
    warps = 4 if cols <= (2048 if gate else 1024) else 8 if cols <= 6144 or masked else 16
    chunk = 256 * warps
    chunks = -(-cols // chunk)
    large = two and len(problem.extras) == 1 and warps == 8 and chunks == 1 and problem.item_bytes == 2
    gated_layer = "z" in problem.extras and problem.accumulators == 2
    tall = large or (gated_layer and warps == 4 and problem.item_bytes == 2 and problem.alignments == 1)
    tile_rows = max(1, floor_power_of_two((1024 if tall else 512) * warps // (chunks * chunk)))
    spills = problem.norm_first and problem.accumulators == 2 and cols % chunk > 0
    unpacked = large or (gated_layer and chunks == 2 and (warps == 8 or problem.norm_first))
    most_packed = 1 if gate and warps == 4 else 3 if spills else 6 if masked else 2
    packed = packed and not unpacked and chunks <= most_packed
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
        stages=STAGES + ((two or gated_layer) and warps == 8 and chunks == 2),
    )


def _registers(programs: int, warps: int) -> int:
    """Registers of a thread with so many programs on a multiprocessor."""
    return REGISTERS // (32 * warps * programs) // 8 * 8
