"""A launch: one way to cut a norm backward into programs, with the sizes that this takes.

Each regime is a class of launches, in a file of its own in regimes/. This file has what all of them answer, and the
arithmetic that they share. Nothing here or there imports torch or Triton before a launch runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from .limits import SUM_BYTES, Rules
from .problem import GpuLimits, Problem

if TYPE_CHECKING:
    from .tensors import CallTensors

STAGES = 3  # two buffers: a tile arrives while another is used; with 2 Triton makes one, and nothing overlaps


class KernelCall:
    """A kernel, its grid and its arguments, before it is launched."""

    def __init__(self, kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
        self.kernel = kernel
        self.grid = grid
        self.args = args
        self.options = options

    def start(self) -> Any:
        """Launch it on the current stream; return it compiled, or None in Triton's interpreter.

        Raises ValueError where there is no GPU and Triton does not interpret.
        """
        try:
            return self.kernel[self.grid](*self.args, **self.options)
        except RuntimeError as error:
            if "active driver" not in str(error):
                raise
            raise ValueError(
                "Triton finds no GPU here; set TRITON_INTERPRET=1 before Python starts, and its interpreter runs this"
            ) from error


@dataclass(frozen=True)
class Launch(ABC):
    """A regime's sizes for one call. It is frozen and hashable, and its fields are plain values that JSON can hold."""

    regime: ClassVar[str]  # its name in a file of tuned launches

    @classmethod
    @abstractmethod
    def serves(cls, problem: Problem, gpu: GpuLimits) -> bool:
        """Whether this regime is the choice for a problem that no regime before it in choice.py serves."""

    @classmethod
    @abstractmethod
    def choose(cls, problem: Problem, gpu: GpuLimits) -> Self:
        """Choose the launch of this regime, without measuring anything."""

    @abstractmethod
    def describe(self) -> str:
        """Describe the launch to a person, on one line."""

    @abstractmethod
    def rules(self, problem: Problem, gpu: GpuLimits) -> Rules:
        """Yield what the launch must keep to: whether each rule is broken, and the words for it."""

    @abstractmethod
    def resized_for(self, problem: Problem, gpu: GpuLimits) -> Self:
        """Return the same launch for a problem of other rows, with its tiles shared evenly by its programs."""

    @abstractmethod
    def neighbours(self, problem: Problem, gpu: GpuLimits) -> Iterator[Launch]:
        """Yield launches that may be faster than this one; some may break rules."""

    @abstractmethod
    def calls(self, tensors: CallTensors) -> list[KernelCall]:
        """Name the kernels of one call, in order.

        They read and write `tensors`, the workspace, and memory of `tensors.empty`, and no other. All other arguments
        follow from shapes, strides and dtypes: the same is launched again for other tensors that are alike (bound.py).
        """

    def violation(self, problem: Problem, gpu: GpuLimits) -> str | None:
        """Say in a few words why this launch must not run on this problem and device; None where it may."""
        return next((why for broken, why in self.rules(problem, gpu) if broken), None)

    def as_fields(self) -> dict[str, Any]:
        """The launch as plain values: its fields, and the name of its regime."""
        return {"regime": self.regime, **asdict(self)}

    def difference(self, other: Launch) -> str:
        """How this launch differs from another: its fields that do, or its description if the regimes do."""
        if type(self) is not type(other):
            return self.describe()
        theirs = other.as_fields()
        return ", ".join(f"{name}={value}" for name, value in self.as_fields().items() if value != theirs[name])


def even_programs(tiles: int, most: int) -> int:
    """Programs, at most `most`, of which each gets as many tiles as the busiest would: fewer finish no later."""
    turns = max(1, -(-tiles // most))
    return max(1, -(-tiles // turns))


def fitting_stages(tile_bytes: int, gpu: GpuLimits, wanted: int) -> int:
    """The most stages up to `wanted` whose buffers fit beside SUM_BYTES; fewer than STAGES gain nothing, so then 1."""
    fitting = (gpu.shared_bytes - SUM_BYTES) // tile_bytes + 1
    return min(wanted, fitting) if fitting >= STAGES else 1


def half_and_double(size: int) -> tuple[int, ...]:
    """A size, its half and its double, to try beside each other."""
    return (size, size // 2, 2 * size) if size > 1 else (size, 2)


def power_of_two(number: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << (number - 1).bit_length()


def floor_power_of_two(number: int) -> int:
    """The largest power of two that is no more; 1 for less than that."""
    return 1 << max(0, number.bit_length() - 1)


def kernel_options(warps: int, *, maxnreg: int | None = None) -> dict[str, Any]:
    """Triton's launch options, each named only where it is wanted: the AMD backend refuses those that it lacks."""
    return {"num_warps": warps} | ({} if maxnreg is None else {"maxnreg": maxnreg})
