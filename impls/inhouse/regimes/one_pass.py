"""One pass: a program takes whole rows, and reads x and dy once."""

# Triton makes constexprs of plain ints and bools, and takes launch options beside a kernel's own arguments.
# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, ClassVar

from ..launch import (
    STAGES,
    KernelCall,
    Launch,
    deal_evenly,
    fitting_stages,
    floor_power_of_two,
    half_and_double,
    kernel_options,
    power_of_two,
)
from ..limits import (
    FEWEST_ELEMENTS,
    FEWEST_WARPS,
    MOST_ELEMENTS,
    MOST_REGISTERS,
    REGISTERS,
    RESERVED_BYTES,
    SUM_BYTES,
    Rules,
    all_resident,
    covered,
    in_range,
    registers_can_be_limited,
    shared_memory_fits,
)
from ..problem import Gpu, Problem
from .shared import Shared

if TYPE_CHECKING:
    from ..tensors import Tensors

MOST_PROGRAMS = 1024  # MOST of chains.py
MAY_SHARE_FROM = 4096  # columns from which sharing rows may pay where one program could take them


@dataclass(frozen=True)
class OnePass(Launch):
    """Tiles of `rows` rows, each `chunks` x `cols` columns, which `programs` programs take in turn.

    one_pass_kernel.py says what `fold` and `packed` do; `fused` programs add up their partial gradients themselves.
    """

    regime: ClassVar[str] = "one pass"

    rows: int
    chunks: int
    cols: int
    warps: int
    programs: int
    fold: bool
    packed: bool = False
    maxnreg: int | None = None
    stages: int = STAGES
    fused: bool = False

    # ------------------------------------------------------------------------------------------------ the choice

    @classmethod
    def serves(cls, problem: Problem, gpu: Gpu) -> bool:
        """Rows that the registers of one program hold."""
        if problem.held > 2:
            return problem.cols <= (4096 if "dy1" in problem.beside and gpu.ptx else 8192)
        return problem.cols <= (12288 if _light(problem, gpu) else 8192)

    @classmethod
    def choose(cls, problem: Problem, gpu: Gpu) -> OnePass:
        """Choose a narrow or a flat tile, as many of them in flight as fit, and deal them out evenly.

        A row that ends inside its last chunk has fewer bytes in flight than lanes, so that it has one more tile there.
        The programs add their partials up themselves where they may wait for each other.
        """
        if problem.cols <= 512:
            launch = _narrow(problem, gpu)
        else:
            few = set(problem.beside) <= {"dres"}
            launch = _flat(problem, gpu) if few else _flat_of_many(problem, gpu)
        tile_bytes = launch.rows * launch.chunks * launch.cols * problem.read_bytes
        residents = max(1, launch.programs // gpu.multiprocessors)
        room = min(gpu.shared_bytes, gpu.shared_total // residents - RESERVED_BYTES)
        wanted = launch.stages + (launch.chunks * launch.cols != problem.cols)
        stages = fitting_stages(tile_bytes, replace(gpu, shared_bytes=room), wanted)
        programs = deal_evenly(-(-problem.rows // launch.rows), launch.programs)
        return replace(launch, programs=programs, stages=stages, fused=gpu.ptx)

    def describe(self) -> str:
        """The regime, the tile and the programs."""
        text = f"one pass: {self.rows} x {self.chunks * self.cols}, {self.warps} warps, "
        text += f"{self.programs} programs, {self.stages} stages"
        return text + (", packed" if self.packed else "")

    # ------------------------------------------------------------------------------------------------ the limits

    def rules(self, problem: Problem, gpu: Gpu) -> Rules:
        """Whole rows, and room for all programs at once, without which they would take turns."""
        yield from in_range(self.rows, self.cols, self.warps, counts=(self.chunks, self.programs, self.stages))
        yield from covered(self.chunks, self.cols, problem)
        yield self.fold and self.cols < 256 * self.warps, "rows are folded where threads share columns"
        yield (self.packed or self.fused) and not gpu.ptx, "inline PTX, which this device does not take"
        yield self.packed and problem.item_bytes != 2, "packed tiles of 32-bit numbers"
        yield from registers_can_be_limited(self.maxnreg, gpu)
        tile_bytes = self.rows * self.chunks * self.cols * problem.read_bytes
        buffers = tile_bytes * (self.stages - 1)
        yield from shared_memory_fits(buffers, gpu, beside=SUM_BYTES)
        yield self.fused and self.programs > MOST_PROGRAMS, "more programs than share their work out"
        if self.fused:
            yield from all_resident(self.programs, self.warps, self.maxnreg, buffers, gpu)

    # ------------------------------------------------------------------------------------------------ what to tune

    def dealt(self, rows: int, gpu: Gpu) -> OnePass:
        """To as many programs a multiprocessor as it has."""
        return self.dealt_to(-(-self.programs // gpu.multiprocessors), rows, gpu)

    def dealt_to(self, residents: int, rows: int, gpu: Gpu) -> OnePass:
        """To `residents` programs a multiprocessor."""
        return replace(self, programs=deal_evenly(-(-rows // self.rows), residents * gpu.multiprocessors))

    def neighbours(self, problem: Problem, gpu: Gpu) -> Iterator[Launch]:
        """Every mixture of rows, warps, programs and packing at as many stages, and of rows and programs at others.

        A chunk is 256 columns a warp where rows are folded, else it stays. What is sure to need more registers than
        there are is left out by a rough count, so that nobody waits for its compilation.
        """
        shapes = [replace(self, rows=rows) for rows in half_and_double(self.rows)]
        mixed = [
            replace(shape.with_warps(warps, problem.cols), packed=packed)
            for shape, warps, packed in product(shapes, half_and_double(self.warps), (self.packed, not self.packed))
        ]
        deeper = [replace(shape, stages=stages) for shape, stages in product(shapes, (STAGES, STAGES + 1, STAGES + 2))]
        for launch, residents in product((*mixed, *deeper), (1, 2)):
            if launch.is_worth_compiling(problem, residents):
                yield launch.dealt_to(residents, problem.rows, gpu)
        if problem.cols >= MAY_SHARE_FROM:
            yield from Shared.of_widths(problem, gpu, ((2048, 4), (4096, 8)), most_residents_only=True)

    def with_warps(self, warps: int, cols: int) -> OnePass:
        """The same for rows of `cols` columns with another number of warps."""
        maxnreg = REGISTERS // (32 * warps) if warps > FEWEST_WARPS else None
        if not self.fold:
            return replace(self, warps=warps, maxnreg=maxnreg)
        chunk = 256 * warps
        return replace(self, warps=warps, cols=chunk, chunks=-(-cols // chunk), maxnreg=maxnreg)

    def is_worth_compiling(self, problem: Problem, residents: int) -> bool:
        """Whether a thread has enough to do, and registers for it, with `residents` programs a multiprocessor."""
        elements = self.rows * self.chunks * self.cols // (32 * self.warps)
        registers = MOST_REGISTERS if residents * self.warps <= 8 else REGISTERS // (32 * self.warps * residents)
        return (
            FEWEST_ELEMENTS <= elements <= MOST_ELEMENTS
            and self.chunks * self.cols < 2 * problem.cols  # else half of the lanes are past the end of the row
            and (self.fold or not self.packed)  # what is not folded needs its registers for accumulators
            and self._registers_needed(elements, problem) <= registers
        )

    def _registers_needed(self, elements: int, problem: Problem) -> int:
        """Registers of a thread, about: x, dy and their like, weights and accumulators, and some for the rest."""
        accumulated = elements // self.rows if self.fold else elements  # columns that an accumulator is kept for
        has_weight = problem.weight_dtype is not None
        weight = (elements // self.rows) // (2 if self.packed else 1) if has_weight else 0
        held = elements * problem.held // (2 if self.packed else 1)
        return held + weight * problem.norms + accumulated * problem.accumulators + 32

    # ------------------------------------------------------------------------------------------------ the call

    def calls(self, tensors: Tensors) -> list[KernelCall]:
        """One kernel, and the sum of the partial gradients if it does not do that itself."""
        import torch
        from triton import knobs

        from ..finish import finish_tile, sum_partials
        from ..workspace import FIXED_WORDS, chain_words
        from .one_pass_kernel import backward_rows

        rows, cols = tensors.dx.shape
        interpreted = knobs.runtime.interpret
        partial_dweight, partial_dbias = tensors.partials(self.programs)
        beside = tensors.beside(self.programs)
        fused = self.fused and partial_dweight is not None
        words = None
        if fused and interpreted:
            words = torch.zeros(FIXED_WORDS, dtype=torch.int64)
        elif fused:
            words = chain_words(tensors.x.device)
        limited = self.maxnreg is not None and self.warps < 8
        elements = 32 * self.warps * (16 if (self.maxnreg or MOST_REGISTERS) <= 128 else 64)
        kernel = KernelCall(
            backward_rows,
            (self.programs,),
            tensors.dx,
            tensors.dweight,
            tensors.dbias,
            partial_dweight,
            partial_dbias,
            *tensors.inputs,
            words,
            beside,
            *tensors.sizes,
            ZERO_CENTRED=tensors.zero_centred,
            HEADS=tensors.heads,
            R=self.rows,
            K=self.chunks,
            C=self.cols,
            FOLD=self.fold,
            PACKED=self.packed,
            STAGES=self.stages,
            HELP_STAGES=self.stages if self.fold and cols <= 8192 and not limited else 1,  # fewer registers
            EVEN=rows % self.rows == 0 and cols == self.chunks * self.cols,
            FUSED=fused,
            CHAINS=max(power_of_two(self.programs), 32 * self.warps),
            OTHERS=power_of_two(-(-MOST_PROGRAMS // self.programs)),
            INTERPRETED=interpreted,
            **finish_tile(tensors, self.programs, self.programs, elements),
            **kernel_options(self.warps, maxnreg=self.maxnreg),
        )
        return [kernel] if fused else [kernel, *sum_partials(tensors, partial_dweight, partial_dbias, beside)]


def _light(problem: Problem, gpu: Gpu) -> bool:
    """Whether tiles can be packed, and registers are left that make it worth while."""
    single = problem.accumulators <= 1
    return problem.item_bytes == 2 and problem.weight_bytes <= 2 and single and gpu.ptx


def _narrow(problem: Problem, gpu: Gpu) -> OnePass:
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
    if problem.held > 2:
        tile_rows //= 2  # the registers that a second norm or a gate takes
    if problem.rows < 4 * gpu.multiprocessors * tile_rows:
        tile_rows //= 2
    turns = 48 if problem.cols <= 256 else 16
    alone = problem.rows <= turns * gpu.multiprocessors * tile_rows
    programs = gpu.multiprocessors * (1 if alone else 2)
    return OnePass(tile_rows, chunks, chunk, 4, programs, fold=False, stages=STAGES + alone)


def _flat(problem: Problem, gpu: Gpu) -> OnePass:
    """Warps side by side along the row, each thread with 8 consecutive columns of every chunk.

    4 warps up to 2048 columns, where that covers the row with fewer idle lanes, and up to 4096 where there are rows for
    16 turns; else 8; at most 40 elements a thread, 48 of a light one. Two programs a multiprocessor hide each other's
    barriers; one leaves half as many partials, which counts where turns are few. At 2048 columns a light one has a tile
    twice as large then, 64 elements a thread. Light ones are packed up to 4096 columns and above 8192. With 8 warps and
    nothing packed one more tile in flight helps up to 8192 columns. Below 1024 columns others have 2 warps, which wait
    for each other less, and four programs. From 15 turns of more than 4096 columns on fewer programs than
    multiprocessors are as fast.

    Another kernel may hold multiprocessors. All programs still run at once if each of the others has room for more
    than its share of them. So where the kernel needs no more, registers are limited to leave room for half as many
    programs again. And one program of 4 warps is taken where it is as fast as two, or as one of 8 warps: with as many
    registers as a thread can have, it takes half of a multiprocessor's.
    """
    rows, cols, light = problem.rows, problem.cols, _light(problem, gpu)
    if cols < 1024 and not light and gpu.ptx and problem.item_bytes == 2:
        return OnePass(2, 2, 512, 2, 4 * gpu.multiprocessors, fold=True, maxnreg=_registers(5, 2))
    half = _half(problem, gpu)
    if half is not None:
        return half
    long = _long(problem, gpu)
    narrower = _padded(cols, 4) < _padded(cols, 8) and cols <= 5120
    warps = 4 if cols <= 2048 or narrower or (cols <= 4096 and long) else 8
    chunk = 256 * warps
    chunks = -(-cols // chunk)
    large = light and warps == 4 and chunks == 2 and not long
    tile_rows = max(1, floor_power_of_two((2048 if large else 1024) * warps // (chunks * chunk)))
    alone = warps == 8 or large or rows <= 4 * gpu.multiprocessors * tile_rows
    packed = light and not 4096 < cols <= 8192
    programs = gpu.multiprocessors * (1 if alone else 2)
    if not light and not problem.beside and cols > 4096 and rows >= 15 * gpu.multiprocessors:
        programs = max(1, gpu.multiprocessors * 15 // 16)
    stages = STAGES + (warps == 8 and cols <= 8192 and not packed and not problem.beside)
    maxnreg = None
    if gpu.ptx and problem.item_bytes == 2 and not problem.beside:
        room = (packed and cols <= 4096) or cols <= 1024 or (cols <= 2048 and long)
        if room and not (alone and warps == 4):
            maxnreg = _registers(3 if warps == 4 else 2, warps)
    return OnePass(tile_rows, chunks, chunk, warps, programs, fold=True, packed=packed, maxnreg=maxnreg, stages=stages)


def _half(problem: Problem, gpu: Gpu) -> OnePass | None:
    """One program of 4 warps a multiprocessor, which takes half of it; None where others are faster.

    With three tiles in flight in RMSNorm at 8192 columns, where the row can be held packed: some registers spill, and
    it is a little faster all the same. With four up to 4096 columns, where there are two accumulators and many rows or
    a residual, for which one tile fewer is in flight.
    """
    if problem.item_bytes != 2 or not gpu.ptx:
        return None
    if _light(problem, gpu) and problem.norm == "rms" and problem.cols == 8192 and not problem.beside:
        launch = OnePass(1, 8, 1024, 4, gpu.multiprocessors, fold=True, packed=True, stages=STAGES + 1)
    elif problem.accumulators == 2 and 3072 < problem.cols <= 4096 and (problem.beside or _long(problem, gpu)):
        launch = OnePass(1, 4, 1024, 4, gpu.multiprocessors, fold=True, stages=STAGES + 2 - len(problem.beside))
    else:
        return None
    buffers = (launch.stages - 1) * launch.chunks * launch.cols * problem.read_bytes
    return launch if 2 * (buffers + RESERVED_BYTES) <= gpu.shared_total else None


def _flat_of_many(problem: Problem, gpu: Gpu) -> OnePass:
    """A flat tile where more than a residual is read beside x and dy: 16 to 32 elements a thread.

    Two norms have a tile twice as large where a row is one chunk, and one more tile in flight where it is two. RMSNorm
    with a gate has 4 warps up to 2048 columns, and two programs. Up to two chunks are packed in 16 bits, but for those.
    Three are not: packed, they spilled more registers on sm_100.
    """
    rows, cols = problem.rows, problem.cols
    two, gate = "dy1" in problem.beside, "z" in problem.beside and problem.accumulators == 1
    warps = 4 if cols <= (2048 if gate else 1024) else 8 if cols <= 6144 else 16
    chunk = 256 * warps
    chunks = -(-cols // chunk)
    large = two and warps == 8 and chunks == 1 and problem.item_bytes == 2
    tile_rows = max(1, floor_power_of_two((1024 if large else 512) * warps // (chunks * chunk)))
    packed = gpu.ptx and problem.item_bytes == 2 and problem.weight_bytes <= 2
    packed = packed and not large and chunks <= (1 if gate and warps == 4 else 2)
    alone = warps > 4 or rows <= 4 * gpu.multiprocessors * tile_rows
    maxnreg = REGISTERS // (32 * warps) if warps > FEWEST_WARPS and gpu.ptx else None
    programs = gpu.multiprocessors * (1 if alone else 2)
    stages = STAGES + (two and warps == 8 and chunks == 2)
    return OnePass(tile_rows, chunks, chunk, warps, programs, fold=True, packed=packed, maxnreg=maxnreg, stages=stages)


def _long(problem: Problem, gpu: Gpu) -> bool:
    """Whether there are rows for 16 turns of two programs a multiprocessor."""
    return problem.rows >= 16 * 2 * gpu.multiprocessors


def _registers(programs: int, warps: int) -> int:
    """Registers of a thread with so many programs on a multiprocessor."""
    return REGISTERS // (32 * warps * programs) // 8 * 8


def _padded(cols: int, warps: int) -> int:
    """Columns of a flat tile of so many warps."""
    return -(-cols // (256 * warps)) * 256 * warps
