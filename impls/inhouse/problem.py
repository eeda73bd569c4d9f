"""What a launch is chosen for: what the choice may know of a call, and of a device."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from harness.cases import NormCase

LAUNCHES = "NORMBWD_LAUNCHES"  # the environment variable that names a file of tuned launches
SM_MARGIN = "NORMBWD_SM_MARGIN"  # and the one that says how many multiprocessors a launch leaves to other kernels

HELD = ("dy1", "z")
MASKS = ("mask", "mask1")
BESIDE = ("dres", *MASKS, *HELD)  # what may be read of x's shape besides x and dy

Norm = Literal["rms", "layer"]
Dtype = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True)
class Problem:
    """A call: x and dy `(rows, cols)` of `dtype`; weight and bias of `weight_dtype`, None where there are none.

    A tuned launch serves a call whose fields are the same but for rows. `by_words` says that every row of x and dy
    can be read two numbers at a time. `beside` has the names of the tensors of x's shape that are read besides these.
    """

    norm: Norm
    rows: int
    cols: int
    dtype: Dtype
    weight_dtype: Dtype | None
    bias: bool
    by_words: bool
    beside: tuple[str, ...] = ()

    @property
    def item_bytes(self) -> int:
        """Bytes of an element of x."""
        return _bytes(self.dtype)

    @property
    def weight_bytes(self) -> int:
        """Bytes of an element of weight; 0 without one."""
        return 0 if self.weight_dtype is None else _bytes(self.weight_dtype)

    @property
    def accumulators(self) -> int:
        """Parameter gradients, each of which costs a register for every column that a thread holds."""
        return (int(self.weight_dtype is not None) + int(self.bias)) * self.norms

    @property
    def norms(self) -> int:
        """Norms of this x: 1, or 2 in parallel."""
        return 2 if "dy1" in self.beside else 1

    @property
    def held(self) -> int:
        """Tensors of which a row is kept from its sums to its dx."""
        return 2 + sum(name in HELD for name in self.beside)

    @property
    def alignments(self) -> int:
        """How many distances from a multiple of 16 bytes rows begin at, where there are so many that it matters.

        Contiguous rows of 16 bits that 4 does not divide. 1 for all others: 8 bytes at once are as fast.
        """
        alone = self.item_bytes == 2 and set(self.beside) <= {"dres"}
        return alignments_of(self.cols) if alone else 1

    @property
    def read_bytes(self) -> int:
        """Bytes that are read of each element."""
        masks = sum(name in MASKS for name in self.beside)
        return (2 + len(self.beside) - masks) * self.item_bytes + masks


@dataclass(frozen=True)
class Gpu:
    """What the choice may know of a device; a CPU in Triton's interpreter looks like a tiny one."""

    multiprocessors: int = 4  # less those that are left to other kernels
    shared_bytes: int = 96 * 1024  # the most that one program may have
    shared_total: int = 100 * 1024  # of a multiprocessor, for all programs on it
    ptx: bool = False  # NVIDIA, sm_80 and later: takes inline PTX, and launches programs that wait for each other
    left: int = 0  # multiprocessors that are left to other kernels


def alignments_of(cols: int) -> int:
    """4 or 8 for rows of 16 bits that begin at so many distances from a multiple of 16 bytes; 1 for fewer."""
    return 1 if cols % 4 == 0 else 8 // gcd(cols, 8)


def problem_of(case: NormCase) -> Problem:
    """What a launch for a case is chosen for, where its inputs are contiguous."""
    from harness.cases.tensors import inputs_of

    weight_dtype = case.weight_dtype if case.weight else None
    words, beside = case.cols % 2 == 0, beside_of([tensor.name for tensor in inputs_of(case)])
    return Problem(case.norm, case.rows, case.cols, case.dtype, weight_dtype, case.bias, words, beside)


def beside_of(names: Collection[str]) -> tuple[str, ...]:
    """Those of all names that a problem has in `beside`."""
    return tuple(name for name in BESIDE if name in names)


def _bytes(dtype: Dtype) -> int:
    return 4 if dtype == "fp32" else 2


def margin_of_environment() -> int:
    """The multiprocessors that NORMBWD_SM_MARGIN leaves to other kernels; raises ValueError where it is no number."""
    text = os.environ.get(SM_MARGIN) or "0"
    if not text.isdecimal():
        raise ValueError(f"{SM_MARGIN} must be a number of multiprocessors, not {text!r}")
    return int(text)
