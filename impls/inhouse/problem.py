"""What a launch is chosen for: all of a call that the choice may depend on, and that a tuned launch has to match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LAUNCHES = "NORMBWD_LAUNCHES"  # the environment variable that names a file of tuned launches

Norm = Literal["rms", "layer"]
Dtype = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True)
class Problem:
    """x, dy `(rows, cols)` of `dtype`; weight and bias of `weight_dtype`, which is None where there are none.

    `by_words` says that every row of x and dy begins at a multiple of 4 bytes, and can be read two numbers at a time.
    """

    norm: Norm
    rows: int
    cols: int
    dtype: Dtype
    weight_dtype: Dtype | None
    bias: bool
    by_words: bool

    @property
    def item_bytes(self) -> int:
        """Of an element of x."""
        return _bytes(self.dtype)

    @property
    def weight_bytes(self) -> int:
        """Of an element of weight; 0 without one."""
        return 0 if self.weight_dtype is None else _bytes(self.weight_dtype)

    @property
    def accumulators(self) -> int:
        """Parameter gradients, each of which costs a register for every column that a thread holds."""
        return int(self.weight_dtype is not None) + int(self.bias)


def _bytes(dtype: Dtype) -> int:
    return 4 if dtype == "fp32" else 2
