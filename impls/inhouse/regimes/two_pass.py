"""Two passes: rows that neither fit one program nor can be shared; x and dy are read twice."""

# Triton makes constexprs of plain ints and bools, and takes launch options beside a kernel's own arguments.
# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, ClassVar

from .. import limits
from ..launch import STAGES, KernelCall, Launch, fitting_stages, half_and_double, kernel_options
from ..problem import GpuLimits, Problem

if TYPE_CHECKING:
    from ..tensors import CallTensors


@dataclass(frozen=True)
class TwoPass(Launch):
    """Row sums in chunks of `sum_cols` columns; then tiles of `rows` x `cols`, with `groups` programs a column tile."""

    regime: ClassVar[str] = "two passes"

    rows: int
    cols: int
    warps: int
    groups: int
    sum_cols: int = 4096
    sum_warps: int = 8
    stages: int = STAGES
    fused: bool = False  # kept because files of tuned launches hold it

    @classmethod
    def serves(cls, problem: Problem, gpu: GpuLimits) -> bool:
        """Everything that is left."""
        return True

    @classmethod
    def choose(cls, problem: Problem, gpu: GpuLimits) -> TwoPass:
        """Tiles of 4 x 1024, 32 elements a thread; there are no row sums, so 4 programs a multiprocessor."""
        tile_cols = 1024
        tile_rows = 4 if problem.item_bytes == 2 else 2  # the same bytes in flight, and the same registers
        column_tiles = -(-problem.cols // tile_cols)
        groups = max(1, min(4 * gpu.multiprocessors // column_tiles, -(-problem.rows // tile_rows)))
        stages = fitting_stages(4096 * _sum_bytes(problem), gpu, STAGES)  # of the first pass, the larger of the two
        return cls(tile_rows, tile_cols, 4, groups, stages=stages)

    def describe(self) -> str:
        text = f"two passes: {self.rows} x {self.cols}, {self.warps} warps, {self.groups} groups, "
        return text + f"{self.stages} stages"

    def rules(self, problem: Problem, gpu: GpuLimits) -> limits.Rules:
        """Sizes in range, and buffers of both passes that fit."""
        yield self.fused, "two passes, whose programs do not wait for each other"  # nobody would sum the partials
        yield from limits.in_range(self.rows, self.cols, self.warps, counts=(self.groups, self.stages))
        yield from limits.in_range(self.sum_cols, self.sum_warps)
        of_sums = self.sum_cols * _sum_bytes(problem)
        of_tiles = self.rows * self.cols * problem.read_bytes
        yield from limits.shared_memory_fits(max(of_sums, of_tiles) * (self.stages - 1), gpu, extra=limits.SUM_BYTES)

    def resized_for(self, problem: Problem, gpu: GpuLimits) -> TwoPass:
        """No more groups than tiles."""
        return replace(self, groups=max(1, min(self.groups, -(-problem.rows // self.rows))))

    def neighbours(self, problem: Problem, gpu: GpuLimits) -> Iterator[Launch]:
        """Half and double the rows and columns of a tile, and half and double the programs."""
        for rows, cols, factor in product(half_and_double(self.rows), half_and_double(self.cols), (1, 2, 0.5)):
            elements = rows * cols // (32 * self.warps)
            if limits.FEWEST_ELEMENTS <= elements <= limits.MOST_ELEMENTS:
                column_tiles = -(-problem.cols // cols)
                groups = max(1, int(factor * 4 * gpu.multiprocessors) // column_tiles)
                yield replace(self, rows=rows, cols=cols, groups=groups).resized_for(problem, gpu)

    def calls(self, tensors: CallTensors) -> list[KernelCall]:
        from ..finish import sum_partials
        from .two_pass_kernel import backward_columns, row_sums

        rows, cols = tensors.shape
        partials = tensors.partials(self.groups)
        extra = tensors.extra_operands(self.groups)
        of_xhats = tensors.empty((rows,))
        of_ones = None if tensors.mean is None else tensors.empty((rows,))
        first = KernelCall(
            row_sums,
            (rows,),
            of_xhats,
            of_ones,
            *tensors.inputs,
            extra,
            *tensors.sizes[1:],
            **tensors.constants,
            C=self.sum_cols,
            STAGES=self.stages,
            EVEN=cols % self.sum_cols == 0,
            **kernel_options(self.sum_warps),
        )
        second = KernelCall(
            backward_columns,
            (self.groups * -(-cols // self.cols),),
            tensors.gradients.dx,
            *partials,
            *tensors.inputs,
            of_xhats,
            of_ones,
            extra,
            *tensors.sizes,
            **tensors.constants,
            R=self.rows,
            C=self.cols,
            STAGES=self.stages,
            EVEN=rows % self.rows == 0 and cols % self.cols == 0,
            **kernel_options(self.warps),
        )
        return [first, second, *sum_partials(tensors, *partials, extra)]


def _sum_bytes(problem: Problem) -> int:
    """Bytes of shared memory for each column of a row that is summed: x, dy and their like, and the weights."""
    return problem.row_tensors_kept * problem.item_bytes + 4 * problem.norms
