"""One pass: a program takes whole rows, and reads x and dy once."""

# Triton makes constexprs of plain ints and bools, and takes launch options beside a kernel's own arguments.
# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, ClassVar

from .. import limits
from ..launch import STAGES, KernelCall, Launch, even_programs, fitting_stages, half_and_double, kernel_options
from ..problem import GpuLimits, Problem
from .one_pass_tiles import Asked, Tile, flat, flat_of_many, narrow, one_each
from .shared import Shared

if TYPE_CHECKING:
    from ..tensors import CallTensors

MOST_PROGRAMS = 1024  # MOST of arrivals.py
MAY_SHARE_FROM = 4096  # columns from which sharing rows may pay where one program could take them


@dataclass(frozen=True)
class OnePass(Tile, Launch):
    """Programs that take tiles of whole rows in turn; `fused` ones add up their partial gradients themselves."""

    regime: ClassVar[str] = "one pass"

    fused: bool = False

    @classmethod
    def serves(cls, problem: Problem, gpu: GpuLimits) -> bool:
        """Rows that the registers of one program hold."""
        if problem.row_tensors_kept > 2:
            return problem.cols <= (4096 if "dy1" in problem.extras and gpu.ptx else 8192)
        return problem.cols <= (12288 if Asked(problem, gpu).light else 8192)

    @classmethod
    def choose(cls, problem: Problem, gpu: GpuLimits) -> OnePass:
        """Choose a tile for each program where that serves, else tiles that programs take in turn."""
        each = one_each(problem, gpu)
        if each is not None:
            return cls(**asdict(each)).resized_for(problem, gpu)
        return cls.choose_in_turn(problem, gpu)

    @classmethod
    def choose_in_turn(cls, problem: Problem, gpu: GpuLimits) -> OnePass:
        """Choose a narrow or a flat tile, as many of them in flight as fit, and deal them out evenly.

        A row that ends inside its last chunk has fewer bytes in flight than lanes, so that it has one more tile there,
        but for rows of more than 8192 columns, of which two are enough.
        The programs add their partials up themselves where they may wait for each other.
        """
        if problem.cols <= 512:
            tile = narrow(problem, gpu)
        else:
            few = set(problem.extras) <= {"dres"}
            tile = flat(problem, gpu) if few else flat_of_many(problem, gpu)
        launch = cls(**asdict(tile))
        tile_bytes = launch.rows * launch.chunks * launch.cols * problem.read_bytes
        residents = max(1, launch.programs // gpu.multiprocessors)
        room = min(gpu.shared_bytes, gpu.shared_total // residents - limits.RESERVED_BYTES)
        ragged = launch.chunks * launch.cols != problem.cols and problem.cols <= 8192
        wanted = launch.stages + ragged
        stages = fitting_stages(tile_bytes, replace(gpu, shared_bytes=room), wanted)
        return replace(launch, stages=stages, fused=gpu.ptx).resized_to(launch.programs, problem)

    def describe(self) -> str:
        text = f"one pass: {self.rows} x {self.chunks * self.cols}, {self.warps} warps, "
        text += f"{self.programs} programs, {self.stages} stages"
        return text + (", packed" if self.packed else "") + (", gate read twice" if self.reread else "")

    def rules(self, problem: Problem, gpu: GpuLimits) -> limits.Rules:
        """Whole rows, and room for all programs at once, without which they would take turns."""
        yield from limits.in_range(self.rows, self.cols, self.warps, counts=(self.chunks, self.programs, self.stages))
        yield from limits.covered(self.chunks, self.cols, problem)
        yield self.fold and self.cols < 256 * self.warps, "rows are folded where threads share columns"
        yield (self.packed or self.fused) and not gpu.ptx, "inline PTX, which this device does not take"
        yield self.packed and problem.item_bytes != 2, "packed tiles of 32-bit numbers"
        yield from limits.registers_can_be_limited(self.maxnreg, gpu)
        tile_bytes = self.rows * self.chunks * self.cols * problem.read_bytes
        buffers = tile_bytes * (self.stages - 1)
        yield from limits.shared_memory_fits(buffers, gpu, extra=limits.SUM_BYTES)
        yield self.fused and self.programs > MOST_PROGRAMS, "more programs than share their work out"
        if self.fused:
            yield from limits.all_resident(self.programs, self.warps, self.maxnreg, buffers, gpu)

    def resized_for(self, problem: Problem, gpu: GpuLimits) -> OnePass:
        """To as many programs a multiprocessor as it has, or a tile each."""
        if self._one_each(problem):
            return self.resized_to(problem.rows + 8, problem)  # no less than tiles, whose alignments are at most 8
        return self.resized_to(-(-self.programs // gpu.multiprocessors) * gpu.multiprocessors, problem)

    def resized_to(self, most: int, problem: Problem) -> OnePass:
        """To at most so many programs, as many for the tiles of each alignment."""
        alignments = problem.alignments if self.fold else 1
        if min(most, -(-problem.rows // self.rows)) < alignments:
            alignments = 1
        tiles = -(-problem.rows // (self.rows * alignments))
        return replace(self, programs=alignments * even_programs(tiles, most // alignments))

    def neighbours(self, problem: Problem, gpu: GpuLimits) -> Iterator[Launch]:
        """Every mixture of rows, warps, programs and packing at as many stages, and of rows and programs at others.

        Also the same launch with a gate that is kept, or is read again. A chunk is 256 columns a warp where rows are
        folded, else it stays. What is sure to need more registers than there are is left out by a rough count, so that
        nobody waits for its compilation. Where programs take a tile each, also those that take them in turn.
        """
        shapes = [replace(self, rows=rows) for rows in half_and_double(self.rows)]
        mixed = [
            replace(shape.with_warps(warps, problem.cols), packed=packed)
            for shape, warps, packed in product(shapes, half_and_double(self.warps), (self.packed, not self.packed))
        ]
        deeper = [replace(shape, stages=stages) for shape, stages in product(shapes, (STAGES, STAGES + 1, STAGES + 2))]
        if self._one_each(problem):
            yield from (launch.resized_for(problem, gpu) for launch in mixed if launch.is_worth_compiling(problem, 1))
            yield self.choose_in_turn(problem, gpu)
            return
        for launch, residents in product((*mixed, *deeper), (1, 2)):
            if launch.is_worth_compiling(problem, residents):
                yield launch.resized_to(residents * gpu.multiprocessors, problem)
        if "z" in problem.extras:
            yield replace(self, reread=not self.reread)
        if problem.cols >= MAY_SHARE_FROM:
            yield from Shared.of_widths(problem, gpu, ((2048, 4), (4096, 8)), most_residents_only=True)

    def _one_each(self, problem: Problem) -> bool:
        """Whether programs take a tile each: nothing is loaded ahead, and nothing is summed over tiles."""
        return self.stages == 1 and not self.fused and not problem.accumulators

    def with_warps(self, warps: int, cols: int) -> OnePass:
        """The same for rows of `cols` columns with another number of warps."""
        maxnreg = limits.REGISTERS // (32 * warps) if warps > limits.FEWEST_WARPS else None
        if not self.fold:
            return replace(self, warps=warps, maxnreg=maxnreg)
        chunk = 256 * warps
        return replace(self, warps=warps, cols=chunk, chunks=-(-cols // chunk), maxnreg=maxnreg)

    def is_worth_compiling(self, problem: Problem, residents: int) -> bool:
        """Whether a thread has enough to do, and registers for it, with `residents` programs a multiprocessor."""
        elements = self.rows * self.chunks * self.cols // (32 * self.warps)
        registers = (
            limits.MOST_REGISTERS if residents * self.warps <= 8 else limits.REGISTERS // (32 * self.warps * residents)
        )
        return (
            limits.FEWEST_ELEMENTS <= elements <= limits.MOST_ELEMENTS
            and self.chunks * self.cols < 2 * problem.cols  # else half of the lanes are past the end of the row
            and (self.fold or not self.packed)  # what is not folded needs its registers for accumulators
            and self._registers_needed(elements, problem) <= registers
        )

    def _registers_needed(self, elements: int, problem: Problem) -> int:
        """Registers of a thread, about: x, dy and their like, weights and accumulators, and some for the rest."""
        accumulated = elements // self.rows if self.fold else elements  # columns that an accumulator is kept for
        has_weight = problem.weight_dtype is not None
        weight = (elements // self.rows) // (2 if self.packed else 1) if has_weight else 0
        kept = elements * problem.row_tensors_kept // (2 if self.packed else 1)
        return kept + weight * problem.norms + accumulated * problem.accumulators + 32

    def calls(self, tensors: CallTensors) -> list[KernelCall]:
        import torch
        from triton import knobs

        from ..finish import finish_tile, sum_partials
        from ..workspace import FIXED_WORDS, arrival_words
        from .one_pass_kernel import backward_rows

        rows, cols = tensors.shape
        interpreted = knobs.runtime.interpret
        alignments = self._alignments(tensors)
        programs = self.programs // alignments * alignments
        partials = tensors.partials(programs)
        extra = tensors.extra_operands(programs)
        fused = self.fused and partials[0] is not None
        words = None
        if fused and interpreted:
            words = torch.zeros(FIXED_WORDS, dtype=torch.int64)
        elif fused:
            words = arrival_words(tensors.x.device)
        elements = 32 * self.warps * (16 if (self.maxnreg or limits.MOST_REGISTERS) <= 128 else 64)
        kernel = KernelCall(
            backward_rows,
            (programs,),
            *tensors.gradients[:3],
            *partials,
            *tensors.inputs,
            words,
            extra,
            *tensors.sizes,
            **tensors.constants,
            ALIGNMENTS=alignments,
            TAIL=alignments > 1 and rows * cols % 8 > 0,
            R=self.rows,
            K=self.chunks,
            C=self.cols,
            FOLD=self.fold,
            PACKED=self.packed,
            REREAD=self.reread,
            STAGES=self.stages,
            EVEN=rows % self.rows == 0 and cols == self.chunks * self.cols,
            FUSED=fused,
            APART=self.fold and self.chunks * self.cols >= 64 * 32 * self.warps,
            INTERPRETED=interpreted,
            **finish_tile(tensors, programs, programs, elements),
            **kernel_options(self.warps, maxnreg=self.maxnreg),
        )
        return [kernel] if fused else [kernel, *sum_partials(tensors, *partials, extra)]

    def _alignments(self, tensors: CallTensors) -> int:
        """The alignments by which tiles are grouped; 1 where a tile has no room for a row at each of them."""
        alignments = tensors.alignments if self.fold else 1
        room = self.chunks * self.cols - tensors.shape[1]
        return alignments if self.cols > room >= 8 - 8 // alignments and self.programs >= alignments else 1
