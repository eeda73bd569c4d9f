"""Shared rows: several programs take a row that is too wide for one, and exchange their parts of its sums."""

# Triton makes constexprs of plain ints and bools, and takes launch options beside a kernel's own arguments.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

from .. import limits
from ..launch import STAGES, KernelCall, Launch, even_programs, kernel_options, power_of_two
from ..problem import GpuLimits, Problem
from .two_pass import TwoPass

if TYPE_CHECKING:
    import torch

    from ..tensors import CallTensors

PART_BYTES = 4096  # of a row, for a program that shares it: 8 words of two elements a thread, 4 warps side by side
READS = frozenset({"dres", "dy1"})  # of what may be beside x and dy
MOST_PARTS = 64  # of a row: an exchange takes no more
MOST_SUMS = 4  # that an exchange takes at once
MOST_WORDS = 128  # that it reads: 4 loads of a warp
MOST_DELAY = 3  # tiles: with SLOTS of 8, a program may be 2 D + 1 ahead


@dataclass(frozen=True)
class Shared(Launch):
    """Tiles of `rows` rows, each shared by `parts` programs of `cols` columns; `groups` of these take tiles in turn.

    A tile is finished `delay` tiles after its sums were sent out. Of `stages` tiles in shared memory the others are
    under way. All programs have to be on the device at once: `residents` on each multiprocessor, for which `maxnreg`
    registers a thread leave room.
    """

    regime: ClassVar[str] = "shared"

    rows: int
    parts: int
    groups: int
    delay: int
    residents: int
    maxnreg: int | None = None
    cols: int = PART_BYTES // 2
    warps: int = 4
    stages: int = STAGES
    fused: bool = True

    @property
    def programs(self) -> int:
        """Programs in all."""
        return self.groups * self.parts

    @classmethod
    def serves(cls, problem: Problem, gpu: GpuLimits) -> bool:
        """Rows that can be read in words, whose programs are all on the device at once and fit a multiprocessor."""
        part = PART_BYTES // problem.item_bytes
        one_fits = _buffers(2, part, problem) <= gpu.shared_bytes
        few_parts = -(-problem.cols // part) <= min(MOST_PARTS, gpu.multiprocessors)
        return problem.in_pairs and gpu.ptx and one_fits and few_parts and READS.issuperset(problem.extras)

    @classmethod
    def choose(cls, problem: Problem, gpu: GpuLimits) -> Shared:
        """Rows that do not fit: 4 KiB a program, two rows a tile, each sum in one trip for both.

        From 8 turns on, 16 up to eight parts, three programs on a multiprocessor with four tiles each: two that wait
        for their sums, so that nobody waits for the others', one at work and one under way. Where shared memory has no
        room for that, and with fewer turns, of which a tile more that waits would be one more, as many programs as hold
        three tiles each, at most three; from 8 turns on four where there is one accumulator. With eight turns and fewer
        for two, two: they have fewer partials to add up at the end, which is then more than is lost. Beyond 32 programs
        a row the words of two rows would be more loads than they save. With four gradients of parameters parts are half
        as wide up to 16384 columns: whole ones have registers for two programs alone. A residual beside them takes the
        registers of the fourth program, and of two RMSNorms those of the third.
        """
        many = problem.accumulators > 2 and problem.item_bytes == 2 and problem.cols <= 16384
        part = (PART_BYTES // 2 if many else PART_BYTES) // problem.item_bytes
        parts = -(-problem.cols // part)
        tile_rows = 2 if parts <= 32 else 1
        tiles = -(-problem.rows // tile_rows)
        room = {
            stages: gpu.shared_total // (_buffers(tile_rows, part, problem, stages) + limits.RESERVED_BYTES)
            for stages in (STAGES, STAGES + 1)
        }
        three = 3 if problem.accumulators + len(problem.extras) <= 3 else 2  # programs that have registers
        groups_of_three = 3 * gpu.multiprocessors // parts
        if tiles >= 8 * groups_of_three and room[STAGES + 1] >= three == 3:
            residents, delay, stages = 3, 2, STAGES + 1
            if tiles < 16 * groups_of_three and parts <= 8:
                most = 4 if problem.accumulators <= 1 else 3
                residents, delay, stages = min(most, room[STAGES]), 1, STAGES
        else:
            most = three if tiles > 8 * (2 * gpu.multiprocessors // parts) else 2
            residents, delay, stages = max(1, min(most, room[STAGES])), 1, STAGES
        if many:
            most = 3 if parts <= 8 or "dres" in problem.extras else 4
            residents, delay, stages = min(most, room[STAGES]), 1, STAGES
        groups = even_programs(tiles, residents * gpu.multiprocessors // parts)
        return cls(tile_rows, parts, groups, delay, residents, _registers(residents), part, stages=stages)

    def describe(self) -> str:
        text = f"shared: {self.rows} x {self.cols} by {self.parts}, {self.warps} warps, "
        text += f"{self.groups} groups, {self.residents} resident, delay {self.delay}, {self.stages} stages"
        return text + (f", {self.maxnreg} registers" if self.maxnreg else "")

    def rules(self, problem: Problem, gpu: GpuLimits) -> limits.Rules:
        """What the exchange of sums can hold, and all programs on the device at once."""
        yield from limits.in_range(self.rows, self.cols, self.warps, counts=(self.groups, self.residents, self.stages))
        in_pairs = gpu.ptx and problem.in_pairs and self.cols > 1
        yield not in_pairs, "rows are shared in words of two numbers, with inline PTX"
        yield not READS.issuperset(problem.extras), "masks and gates, which shared rows do not read"
        yield from limits.covered(self.parts, self.cols, problem)
        sums = self.rows * (2 if problem.norm == "layer" else 1)
        words = sums * power_of_two(max(1, self.parts))
        yield sums > MOST_SUMS or words > MOST_WORDS, "more sums than one exchange holds"
        yield not 1 <= self.delay <= MOST_DELAY, "a delay that the slots of an exchange do not allow"
        yield self.stages < self.delay + 2, "no stage for a tile under way beside those that wait and the one at work"
        registers = self.maxnreg or 24
        yield registers % 8 > 0 or not 24 <= registers <= limits.MOST_REGISTERS, "registers out of range"
        yield self.groups > limits.MOST_GROUPS, "more groups than have words to meet in"
        yield self.programs > self.residents * gpu.multiprocessors, "more programs than are said to be resident"
        buffers = _buffers(self.rows, self.cols, problem, self.stages)
        yield from limits.shared_memory_fits(buffers, gpu)
        yield from limits.all_resident(self.programs, self.warps, self.maxnreg, buffers, gpu)

    def resized_for(self, problem: Problem, gpu: GpuLimits) -> Shared:
        """To as many programs a multiprocessor as are resident."""
        groups = max(1, self.residents * gpu.multiprocessors // self.parts)
        return replace(self, groups=even_programs(-(-problem.rows // self.rows), groups))

    def neighbours(self, problem: Problem, gpu: GpuLimits) -> Iterator[Launch]:
        """Other widths of a part, and two passes."""
        yield from Shared.of_widths(problem, gpu, ((1024, 4), (2048, 4), (4096, 4), (2048, 8), (4096, 8)))
        yield TwoPass.choose(problem, gpu)

    @classmethod
    def of_widths(
        cls, problem: Problem, gpu: GpuLimits, widths: tuple[tuple[int, int], ...], *, most_residents_only: bool = False
    ) -> Iterator[Shared]:
        """Every mixture of (columns, warps), of rows, delay and stages, and of programs a multiprocessor that may fit.

        More programs than there are tiles for would be the same ones with fewer registers.
        """
        for (cols, warps), (rows, delay, stages) in product(widths, ((2, 1, 3), (2, 1, 4), (2, 2, 4), (1, 1, 3))):
            parts = -(-problem.cols // cols)
            groups_before, offered = 0, list[Shared]()
            for residents in (1, 2, 3, 4):
                maxnreg = _registers(residents * warps // 4)
                launch = cls(rows, parts, 1, delay, residents, maxnreg, cols, warps, stages).resized_for(problem, gpu)
                enough = launch._registers_needed(problem) <= maxnreg
                if parts > 1 and residents * warps >= limits.FEWEST_WARPS and enough:
                    if launch.groups > groups_before:
                        offered.append(launch)
                    groups_before = launch.groups
            yield from offered[-1:] if most_residents_only else offered

    def _registers_needed(self, problem: Problem) -> int:
        """Registers of a thread, about: x and dy at work, weight, accumulators, and some for the rest."""
        elements = self.cols // (32 * self.warps)
        weight = int(problem.weight_dtype is not None)
        return elements * (2 + problem.accumulators + weight * problem.norms) + 40

    def calls(self, tensors: CallTensors) -> list[KernelCall]:
        import torch

        from ..checks import MOST_POLLS, MOST_POLLS_BESIDE
        from ..exchange import exchange_options
        from ..finish import finish_tile, sum_partials
        from ..groups import RINGS
        from ..tensors import TRITON_SEES
        from ..workspace import workspace
        from .shared_kernel import SLOTS, TRITON_DTYPES, backward_parts

        rows, cols = tensors.shape
        partials = tensors.partials(self.groups)
        fused = self.fused and partials[0] is not None
        unit = tensors.unit_where_triton_sees(2 * TRITON_SEES)  # strides are in words
        pairs_unit = (unit + 1) // 2
        extra = _extra_in_pairs(tensors.extra_operands(self.groups), pairs_unit)
        weight, dtype = tensors.weight, TRITON_DTYPES[tensors.x.dtype]
        most_polls = MOST_POLLS if tensors.extras.dres is None and tensors.extras.dy1 is None else MOST_POLLS_BESIDE
        exchange = exchange_options(self.parts, self.rows * (1 if tensors.mean is None else 2), most_polls)
        words = workspace(tensors.x.device, RINGS.value + self.groups * SLOTS.value * exchange["WORDS"])
        tiles = -(-rows // self.rows)
        released = tensors.empty((2 * tiles * exchange["WORDS"],)).view(torch.int64)  # of released chains
        dx, dy, x = (_as_pairs(tensor) for tensor in (tensors.gradients.dx, tensors.dy, tensors.x))
        kernel = KernelCall(
            backward_parts,
            (self.programs,),
            dx,
            *tensors.gradients[1:3],
            *partials,
            dy,
            x,
            None if weight is None else _as_pairs(weight),
            tensors.mean,
            tensors.rstd,
            words,
            released,
            extra,
            rows,
            cols // unit,
            dy.stride(0) // pairs_unit,
            x.stride(0) // pairs_unit,
            ZERO_CENTRED=tensors.zero_centred,
            UNIT=unit,
            DTYPE=dtype,
            WEIGHT_DTYPE=dtype if weight is None else TRITON_DTYPES[weight.dtype],
            R=self.rows,
            C=self.cols,
            S=self.parts,
            D=self.delay,
            STAGES=self.stages,
            EVEN=cols == self.parts * self.cols,
            FUSED=fused,
            SCAN=max(32 * self.warps, power_of_two(self.groups)),
            **exchange,
            **finish_tile(tensors, self.programs, self.groups, 32 * self.warps * 16),
            **kernel_options(self.warps, maxnreg=self.maxnreg),
        )
        return [kernel] if fused else [kernel, *sum_partials(tensors, *partials, extra)]


def _buffers(rows: int, cols: int, problem: Problem, stages: int = STAGES) -> int:
    """Bytes of shared memory of one program: x, dy and their like of `stages` tiles, and a little for sums."""
    return problem.row_tensors_kept * problem.item_bytes * rows * cols * stages + 512


def _registers(residents: int) -> int:
    """Registers of a thread where so many programs of 4 warps share a multiprocessor.

    Always given: left to itself the compiler may take 96 for two, and spill some.
    """
    return min(248, 512 // residents // 8 * 8)


def _extra_in_pairs(extra: Any, unit: int) -> Any:
    """The same with two numbers a word where rows of x's dtype, or weights, are read; strides in units of words."""
    words: dict[str, Any] = {}
    for name in ("dres", "dy1", "weight1"):
        if (tensor := getattr(extra, name)) is not None:
            words[name] = _as_pairs(tensor)
            if f"{name}_stride" in extra._fields:
                words[f"{name}_stride"] = words[name].stride(0) // unit
    return extra._replace(**words) if words else extra


def _as_pairs(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, two numbers a word."""
    import torch

    if tensor.storage_offset() % 2:  # the memory behind it begins on half a word, which the tensor does not
        tensor = torch.from_dlpack(tensor.detach())
    return tensor.view(torch.int32 if tensor.itemsize == 2 else torch.int64)
