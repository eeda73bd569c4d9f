"""The launches worth measuring beside the one chosen: what a device other than those it was made on may like better.

Every candidate keeps to limits.py. What is sure to need more registers than there are is left out by a rough count, so
that nobody waits for its compilation; what spills all the same is found out when it is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from .kinds import STAGES, FewRows, Launch, OnePass, Shared, TwoPass
from .launch import MOST_HELD, dealt, few_registers, few_rows, many_rows, shared_registers, two_pass
from .limits import MOST_REGISTERS, REGISTERS, flaw
from .problem import Gpu, Problem

FEWEST_ELEMENTS = 8  # of a row or a tile in a thread: one 16-byte access of 16-bit numbers
MOST_ELEMENTS = 64  # of a tile in a thread
FEWEST_WARPS = 8  # on a multiprocessor where programs share rows: fewer leave memory idle
SHARED_FROM = 4096  # columns from which sharing rows may pay
FEW = 4  # rows a multiprocessor up to which a second reading may pay


def neighbours(problem: Problem, gpu: Gpu, current: Launch) -> tuple[Launch, ...]:
    """The launches to measure, `current` first, each once; the others all keep to the limits of kernels and device."""
    found: list[Launch] = []
    if isinstance(current, OnePass):
        found += _one_pass(problem, gpu, current)
        if problem.cols >= SHARED_FROM:
            found += _shared(problem, gpu, ((2048, 4), (4096, 8)), most_residents_only=True)
    elif isinstance(current, Shared):
        found += _shared(problem, gpu, ((1024, 4), (2048, 4), (4096, 4), (2048, 8), (4096, 8)))
        found += [two_pass(problem.rows, problem.cols, problem.item_bytes, gpu)]
    elif isinstance(current, TwoPass):
        found += _two_pass(problem, gpu, current)
    if isinstance(current, FewRows):
        found += [many_rows(problem, gpu), *_few_rows(problem, gpu, current)]
    elif problem.rows <= FEW * gpu.multiprocessors and problem.cols <= MOST_HELD:
        found += [few_rows(problem, gpu)]
    return tuple(dict.fromkeys([current, *(each for each in found if flaw(each, problem, gpu) is None)]))


def _one_pass(problem: Problem, gpu: Gpu, current: OnePass) -> Iterator[OnePass]:
    """Every mixture of rows, warps, programs and packing at as many stages as now, and of rows and programs at others.

    A chunk is 256 columns a warp where rows are folded, else it stays.
    """
    shapes = [replace(current, rows=rows) for rows in _around(current.rows)]
    mixed = [
        replace(_with_warps(shape, warps, problem.cols), packed=packed)
        for shape, warps, packed in product(shapes, _around(current.warps), (current.packed, not current.packed))
    ]
    deeper = [replace(shape, stages=stages) for shape, stages in product(shapes, (STAGES, STAGES + 1, STAGES + 2))]
    for launch, residents in product((*mixed, *deeper), (1, 2)):
        elements = launch.rows * launch.chunks * launch.cols // (32 * launch.warps)
        registers = MOST_REGISTERS if residents * launch.warps <= 8 else REGISTERS // (32 * launch.warps * residents)
        if (
            FEWEST_ELEMENTS <= elements <= MOST_ELEMENTS
            and launch.chunks * launch.cols < 2 * problem.cols  # else half of the lanes are past the end of the row
            and (launch.fold or not launch.packed)  # what is not folded needs its registers for accumulators
            and _needed_by_rows(launch, elements, problem) <= registers
        ):
            yield _as_dealt(launch, problem, gpu, residents)


def _with_warps(launch: OnePass, warps: int, cols: int) -> OnePass:
    maxnreg = REGISTERS // (32 * warps) if warps > FEWEST_WARPS else None
    if not launch.fold:
        return replace(launch, warps=warps, maxnreg=maxnreg)
    chunk = 256 * warps
    return replace(launch, warps=warps, cols=chunk, chunks=-(-cols // chunk), maxnreg=maxnreg)


def _needed_by_rows(launch: OnePass, elements: int, problem: Problem) -> int:
    """Registers of a thread, about: x and dy, weight and accumulators, and some for the rest."""
    held = elements // launch.rows if launch.fold else elements  # columns that an accumulator is kept for
    held_weight = problem.weight_dtype is not None
    of_weight = (elements // launch.rows) // (2 if launch.packed else 1) if held_weight else 0
    return elements * (1 if launch.packed else 2) + of_weight + held * problem.accumulators + 32


def _as_dealt(launch: OnePass, problem: Problem, gpu: Gpu, residents: int) -> OnePass:
    found = dealt(launch, problem.rows, gpu, residents)
    assert isinstance(found, OnePass), "dealing out changes the programs alone"
    return found


def _shared(
    problem: Problem, gpu: Gpu, cuts: tuple[tuple[int, int], ...], *, most_residents_only: bool = False
) -> Iterator[Shared]:
    """Every mixture of columns and warps, rows, delay and stages, and programs a multiprocessor that may fit.

    More programs than there are tiles for would be the same ones with fewer registers.
    """
    for (cols, warps), (rows, delay, stages) in product(cuts, ((2, 1, 3), (2, 1, 4), (2, 2, 4), (1, 1, 3))):
        parts = -(-problem.cols // cols)
        groups_before, offered = 0, list[Shared]()
        for residents in (1, 2, 3, 4):
            maxnreg = shared_registers(residents * warps // 4)
            launch = Shared(rows, parts, 1, delay, residents, maxnreg, cols, warps, stages)
            launch = dealt(launch, problem.rows, gpu)
            assert isinstance(launch, Shared), "dealing out changes the groups alone"
            needed = _needed_by_parts(launch, problem)
            if parts > 1 and residents * warps >= FEWEST_WARPS and needed <= maxnreg:
                if launch.groups > groups_before:
                    offered.append(launch)
                groups_before = launch.groups
        yield from offered[-1:] if most_residents_only else offered


def _needed_by_parts(launch: Shared, problem: Problem) -> int:
    """Registers of a thread, about: x and dy at work, weight, accumulators, and some for the rest."""
    each = launch.cols // (32 * launch.warps)
    weight = int(problem.weight_dtype is not None)
    return each * (2 + problem.accumulators + weight) + 40


def _two_pass(problem: Problem, gpu: Gpu, current: TwoPass) -> Iterator[Launch]:
    """Half and double the rows and columns of a tile, and half and double the programs."""
    for rows, cols, factor in product(_around(current.rows), _around(current.cols), (1, 2, 0.5)):
        elements = rows * cols // (32 * current.warps)
        if FEWEST_ELEMENTS <= elements <= MOST_ELEMENTS:
            column_tiles = -(-problem.cols // cols)
            groups = max(1, int(factor * 4 * gpu.multiprocessors) // column_tiles)
            yield dealt(replace(current, rows=rows, cols=cols, groups=groups), problem.rows, gpu)


def _few_rows(problem: Problem, gpu: Gpu, current: FewRows) -> Iterator[FewRows]:
    """Half and double the warps of a row, and the rows and columns of a tile."""
    for warps, rows, cols in product(_around(current.warps), _around(current.rows), _around(current.cols)):
        row_cols = min(256 * warps, current.row_cols) if current.row_cols < 1024 else 256 * warps
        launch = replace(current, warps=warps, rows=rows, cols=cols, row_cols=row_cols)
        held = -(-problem.cols // row_cols) * row_cols
        launch = replace(launch, chunks=held // row_cols, maxnreg=few_registers(problem, gpu, held, warps))
        of_row = held // (32 * warps)
        of_tile = rows * cols // (32 * warps)
        if of_row <= MOST_ELEMENTS and FEWEST_ELEMENTS <= of_tile <= MOST_ELEMENTS // 2 and cols >= 32:
            yield launch


def _around(size: int) -> tuple[int, ...]:
    """A size, its half and its double."""
    return (size, size // 2, 2 * size) if size > 1 else (size, 2)
