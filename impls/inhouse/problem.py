"""What a launch is chosen for: what the choice may know of a call, and of a device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import gcd

from harness.cases.case import ITEM_BYTES, Dtype, Norm, NormCase
from harness.cases.tensors import TABLE, inputs_of

LAUNCHES = "NORMBWD_LAUNCHES"  # the environment variable that names a file of tuned launches
SM_MARGIN = "NORMBWD_SM_MARGIN"  # and the one that says how many multiprocessors a launch leaves to other kernels

# What may be read of x's shape besides x and dy; the masks among it; and what is kept of a row from its sums to its dx.
_EXTRAS = [
    tensor
    for tensor in TABLE
    if tensor.kind == "input" and tensor.extent == "activation" and tensor.name not in ("x", "dy")
]
EXTRA_ROWS = tuple(tensor.name for tensor in _EXTRAS)
MASKS = tuple(tensor.name for tensor in _EXTRAS if tensor.dtype == "uint8")
KEPT = tuple(tensor.name for tensor in _EXTRAS if tensor.dtype == "case" and not tensor.added_to)


@dataclass(frozen=True)
class Problem:
    """A call: x and dy `(rows, cols)` of `dtype`; weight and bias of `weight_dtype`, None where there are none.

    A tuned launch serves a call whose fields are the same but for rows. `in_pairs` says that every row of x and dy
    can be read two numbers at a time. `extras` has the names of the tensors of x's shape that are read besides these;
    of a gate `norm_first` says that it is behind the norm.
    """

    norm: Norm
    rows: int
    cols: int
    dtype: Dtype
    weight_dtype: Dtype | None
    bias: bool
    in_pairs: bool
    extras: tuple[str, ...] = ()
    norm_first: bool = False

    @property
    def item_bytes(self) -> int:
        """Bytes of an element of x."""
        return ITEM_BYTES[self.dtype]

    @property
    def weight_bytes(self) -> int:
        """Bytes of an element of weight; 0 without one."""
        return 0 if self.weight_dtype is None else ITEM_BYTES[self.weight_dtype]

    @property
    def accumulators(self) -> int:
        """Parameter gradients, each of which costs a register for every column that a thread holds."""
        return (int(self.weight_dtype is not None) + int(self.bias)) * self.norms

    @property
    def norms(self) -> int:
        """Norms of this x: 1, or 2 in parallel."""
        return 2 if "dy1" in self.extras else 1

    @property
    def row_tensors_kept(self) -> int:
        """Tensors of which a row is kept from its sums to its dx."""
        return 2 + sum(name in KEPT for name in self.extras)

    @property
    def alignments(self) -> int:
        """How many distances from a multiple of 16 bytes rows begin at, where there are so many that it matters.

        Contiguous rows of 16 bits that 4 does not divide. 1 for all others: 8 bytes at once are as fast.
        """
        alone = self.item_bytes == 2 and set(self.extras) <= {"dres"}
        return alignments_of(self.cols) if alone else 1

    @property
    def read_bytes(self) -> int:
        """Bytes that are read of each element."""
        masks = sum(name in MASKS for name in self.extras)
        return (2 + len(self.extras) - masks) * self.item_bytes + masks


@dataclass(frozen=True)
class GpuLimits:
    """What the choice may know of a device; a CPU in Triton's interpreter looks like a tiny one."""

    multiprocessors: int = 4  # less those that are left to other kernels
    shared_bytes: int = 96 * 1024  # the most that one program may have
    shared_total: int = 100 * 1024  # of a multiprocessor, for all programs on it
    ptx: bool = False  # NVIDIA, sm_80 and later: takes inline PTX, and launches programs that wait for each other
    sm_margin: int = 0  # multiprocessors that are left to other kernels


def alignments_of(cols: int) -> int:
    """4 or 8 for rows of 16 bits that begin at so many distances from a multiple of 16 bytes; 1 for fewer."""
    return 1 if cols % 4 == 0 else 8 // gcd(cols, 8)


def problem_of(case: NormCase) -> Problem:
    """What a launch for a case is chosen for, where its inputs are contiguous."""
    weight_dtype = case.weight_dtype if case.weight else None
    names = [tensor.name for tensor in inputs_of(case)]
    extras, in_pairs = tuple(name for name in EXTRA_ROWS if name in names), case.cols % 2 == 0
    shape, norm_first = (case.rows, case.cols), "gated-norm-first" in case.features
    return Problem(case.norm, *shape, case.dtype, weight_dtype, case.bias, in_pairs, extras, norm_first)


def margin_of_environment() -> int:
    """The multiprocessors that NORMBWD_SM_MARGIN leaves to other kernels; raises ValueError where it is no number."""
    text = os.environ.get(SM_MARGIN) or "0"
    if not text.isdecimal():
        raise ValueError(f"{SM_MARGIN} must be a number of multiprocessors, not {text!r}")
    return int(text)
