"""Few rows: one launch in which some programs own a row and others own columns; x and dy are read twice."""

# Triton makes constexprs of plain ints and bools, and takes launch options beside a kernel's own arguments.
# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, ClassVar

from .. import limits
from ..launch import STAGES, KernelCall, Launch, fitting_stages, half_and_double, kernel_options, power_of_two
from ..problem import GpuLimits, Problem

if TYPE_CHECKING:
    from ..tensors import CallTensors

WIDEST_ROW = 18432  # columns of a row that one program holds: 36 elements a thread, 16 warps
MAY_PAY_UP_TO = 4  # rows a multiprocessor up to which a second reading may pay


@dataclass(frozen=True)
class FewRows(Launch):
    """A program for each row, of `chunks` x `row_cols` columns, and one for every `cols` columns, `rows` at a time."""

    regime: ClassVar[str] = "few rows"

    rows: int
    cols: int
    chunks: int
    row_cols: int
    warps: int
    stages: int = 1
    maxnreg: int | None = None

    @classmethod
    def serves(cls, problem: Problem, gpu: GpuLimits) -> bool:
        """Up to two rows a multiprocessor, where another launch would have one program wait for all.

        Nobody waits then and nothing is added up twice, which is worth a second reading. Above 8192 columns the
        gradients of columns cross between 8 warps and more. That still pays where rows cannot be shared and three
        launches would take their place, and for RMSNorm with fewer rows.
        """
        if problem.cols <= 8192 or (problem.cols <= WIDEST_ROW and not problem.in_pairs):
            return problem.rows <= 2 * gpu.multiprocessors
        narrow_rms = problem.norm == "rms" and problem.accumulators <= 1 and problem.cols <= 16384
        return problem.rows <= (gpu.multiprocessors // 2 if narrow_rms else 0)

    @classmethod
    def choose(cls, problem: Problem, gpu: GpuLimits) -> FewRows:
        """At most 64 elements of a row a thread, 36 where it comes one element at a time.

        Where columns have more than 3 turns, tiles are in flight.
        """
        if problem.cols <= 8192:
            warps, chunk, rows, cols = 4, 1024, 64, 32
        elif problem.in_pairs:
            warps, chunk, rows, cols = 8, 2048, 64, 64
        else:
            warps, chunk, rows, cols = 16, 2048, 64 if problem.rows <= 64 else 128, 64
        chunk = min(power_of_two(problem.cols), chunk)
        turns = -(-problem.rows // rows)
        stages = fitting_stages(_tile_bytes(rows, cols, problem), gpu, STAGES) if turns > STAGES else 1
        chunks = -(-problem.cols // chunk)
        return cls(rows, cols, chunks, chunk, warps, stages, _registers(problem, gpu, chunks * chunk, warps))

    @classmethod
    def may_pay(cls, problem: Problem, gpu: GpuLimits) -> bool:
        """Whether this regime is worth measuring where another is chosen."""
        return problem.rows <= MAY_PAY_UP_TO * gpu.multiprocessors and problem.cols <= WIDEST_ROW

    def describe(self) -> str:
        text = f"few rows: rows of {self.chunks * self.row_cols} beside {self.rows} x {self.cols}, "
        return text + f"{self.warps} warps, {self.stages} stages"

    def rules(self, problem: Problem, gpu: GpuLimits) -> limits.Rules:
        """Whole rows, and buffers of the column tiles that fit."""
        yield from limits.in_range(self.rows, self.cols, self.warps, counts=(self.chunks, self.stages))
        yield from limits.in_range(self.row_cols, self.warps)
        yield from limits.registers_can_be_limited(self.maxnreg, gpu)
        yield from limits.covered(self.chunks, self.row_cols, problem)
        buffers = _tile_bytes(self.rows, self.cols, problem) * (self.stages - 1)
        yield from limits.shared_memory_fits(buffers, gpu, extra=limits.SUM_BYTES)

    def resized_for(self, problem: Problem, gpu: GpuLimits) -> FewRows:
        """Itself: a row has a program of its own."""
        return self

    def neighbours(self, problem: Problem, gpu: GpuLimits) -> Iterator[Launch]:
        """Half and double the warps of a row, and the rows and columns of a tile."""
        for warps, rows, cols in product(*map(half_and_double, (self.warps, self.rows, self.cols))):
            row_cols = min(256 * warps, self.row_cols) if self.row_cols < 1024 else 256 * warps
            row_columns = -(-problem.cols // row_cols) * row_cols
            of_row = row_columns // (32 * warps)
            of_tile = rows * cols // (32 * warps)
            if (
                of_row <= limits.MOST_ELEMENTS
                and limits.FEWEST_ELEMENTS <= of_tile <= limits.MOST_ELEMENTS // 2
                and cols >= 32
            ):
                launch = replace(self, warps=warps, rows=rows, cols=cols, row_cols=row_cols)
                yield replace(
                    launch, chunks=row_columns // row_cols, maxnreg=_registers(problem, gpu, row_columns, warps)
                )

    def calls(self, tensors: CallTensors) -> list[KernelCall]:
        from .few_rows_kernel import backward_few

        rows, cols = tensors.shape
        column_tiles = 0 if tensors.gradients.dweight is None else -(-cols // self.cols)
        kernel = KernelCall(
            backward_few,
            (rows + column_tiles,),
            *tensors.gradients[:3],
            *tensors.inputs,
            tensors.extra_operands(),
            *tensors.sizes,
            **tensors.constants,
            R=self.rows,
            C=self.cols,
            K=self.chunks,
            ROW_C=self.row_cols,
            STAGES=self.stages,
            EVEN=cols == self.chunks * self.row_cols,
            **kernel_options(self.warps, maxnreg=self.maxnreg),
        )
        return [kernel]


def _registers(problem: Problem, gpu: GpuLimits, row_columns: int, warps: int) -> int | None:
    """Registers of a thread where so many columns of a row are row_columns; None leaves it to the compiler.

    With 32 elements a thread NVIDIA's takes 72, for room for more programs than there are, and spills two for that.
    """
    return 128 if gpu.ptx and row_columns == problem.cols == 32 * 32 * warps and problem.row_tensors_kept == 2 else None


def _tile_bytes(rows: int, cols: int, problem: Problem) -> int:
    """Bytes of shared memory of a tile of rows that lie above each other: x, dy and their like, mean and rstd."""
    return rows * (problem.row_tensors_kept * cols * problem.item_bytes + 8)
