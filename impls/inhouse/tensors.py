"""The tensors of one call: what the kernels take, and the dtype in which they write."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .limits import MOST_ROWS, WIDEST

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class Tensors:
    """What one backward reads and writes; x, dy and dx are (rows, cols)."""

    dx: torch.Tensor
    dweight: torch.Tensor | None
    dbias: torch.Tensor | None
    dy: torch.Tensor
    x: torch.Tensor
    weight: torch.Tensor | None
    mean: torch.Tensor | None
    rstd: torch.Tensor
    zero_centred: bool
    scratch: list[torch.Tensor] = field(default_factory=list, init=False, compare=False)  # what `empty` gave out

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What is read, in the order in which all kernels take it."""
        return self.dy, self.x, self.weight, self.mean, self.rstd

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Rows, columns, and the row strides of dy and x, in the order in which all kernels take them."""
        rows, cols = self.x.shape
        return rows, cols, self.dy.stride(0), self.x.stride(0)

    @property
    def gradients(self) -> int:
        """How many gradients have partial sums: dweight, or dweight and dbias."""
        return 1 if self.dbias is None else 2

    def partials(self, number: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Empty memory for so many rows of partial dweight and dbias, fp32."""
        shape = (number, self.x.shape[1])
        dweight, dbias = (None if gradient is None else self.empty(shape) for gradient in (self.dweight, self.dbias))
        return dweight, dbias

    def empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Memory of this call alone, fp32, whatever it holds."""
        memory = torch.empty(shape, dtype=torch.float32, device=self.x.device)
        self.scratch.append(memory)
        return memory


@dataclass(frozen=True, slots=True)
class Around:
    """What a model has around a norm: the further inputs of its backward. None is what there is not.

    All but weight1 and bias `(rows, cols)` in x's shape, or one that has the same rows.

    dres             the gradient of the residual that x goes on as: it is added to dx
    mask, mask1      uint8, 1 where dropout with probability `p` kept an element of a branch, 0 where it did not: the
                     branch's gradient is dbranch = mask * dx / (1 - p)
    dy1, weight1     of a second norm of the same x; it has a bias where the first one has
    z                the gate: of y = norm(x * silu(z)), or with `norm_first` of y = norm(x) * silu(z)
    bias             that of the norm, which a gate behind the norm multiplies too
    """

    dres: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    mask1: torch.Tensor | None = None
    p: float = 0.0
    dy1: torch.Tensor | None = None
    weight1: torch.Tensor | None = None
    z: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    norm_first: bool = False

    @property
    def tensors(self) -> tuple[torch.Tensor | None, ...]:
        """All tensors, in one order."""
        return self.dres, self.mask, self.mask1, self.dy1, self.weight1, self.z, self.bias

    @property
    def decided_by(self) -> tuple[Hashable, ...]:
        """All that a launch depends on beside the tensors."""
        return self.p, self.norm_first


class AroundGradients(NamedTuple):
    """The gradients of a backward with `Around`; None is what there is not."""

    dx: torch.Tensor
    dweight: torch.Tensor | None
    dbias: torch.Tensor | None
    dbranch: torch.Tensor | None = None
    dbranch1: torch.Tensor | None = None
    dweight1: torch.Tensor | None = None
    dbias1: torch.Tensor | None = None
    dz: torch.Tensor | None = None


def check(
    matrices: dict[str, torch.Tensor],
    parameters: dict[str, torch.Tensor | None],
    statistics: dict[str, torch.Tensor | None] | None = None,
    *,
    has_bias: bool,
    zero_centred: bool,
) -> None:
    """Raise ValueError, with the reason, for what the kernels do not take.

    Matrices `(rows, cols)`, x the first, have one dtype and unit column stride; parameters `(cols)`, weight the first,
    and statistics `(rows)` are contiguous, the latter fp32; all are on one device.
    """
    x, *_ = matrices.values()
    weight, *_ = parameters.values()
    rows, cols = x.shape
    if not 1 <= cols <= WIDEST:
        raise ValueError(f"1 to {WIDEST} columns, not {cols}")
    if rows > MOST_ROWS:
        raise ValueError(f"at most {MOST_ROWS} rows, not {rows}")
    dtypes = [matrix.dtype for matrix in matrices.values()]
    if x.dtype not in DTYPES or any(dtype != x.dtype for dtype in dtypes):
        alike = ", and alike" if len(dtypes) > 1 else ""
        names, given = " and ".join(matrices), " and ".join(map(str, dtypes))
        raise ValueError(f"{names} must be bf16, fp16 or fp32{alike}, not {given}")
    for name, matrix in matrices.items():
        if cols > 1 and matrix.stride(1) != 1 and rows:  # of no rows any strides are contiguous
            raise ValueError(f"{name} must have unit column stride, not {matrix.stride(1)}; call .contiguous() on it")
    if weight is None and (has_bias or zero_centred):
        raise ValueError("a bias or a zero-centred weight needs a weight")
    for name, vector in parameters.items():
        _check_vector(name, vector, cols, DTYPES, "bf16, fp16 or fp32")
    statistics = statistics or {}
    for name, vector in statistics.items():
        _check_vector(name, vector, rows, (torch.float32,), "fp32")
    everything = (*matrices.values(), *parameters.values(), *statistics.values())
    if any(tensor is not None and tensor.device != x.device for tensor in everything):
        raise ValueError(f"all tensors must be on x's device, {x.device}")


def _check_vector(
    name: str, vector: torch.Tensor | None, length: int, dtypes: tuple[torch.dtype, ...], names: str
) -> None:
    if vector is None:
        return
    if vector.dtype not in dtypes:
        raise ValueError(f"{name} must be {names}, not {vector.dtype}")
    if vector.shape != (length,) or not vector.is_contiguous():
        raise ValueError(f"{name} must be contiguous ({length},), not {tuple(vector.shape)} {vector.stride()}")


def as_rows(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """The same memory as (rows, cols)."""
    if tensor.dim() < 2:
        raise ValueError(f"{name} must be (rows, cols), or have more leading dimensions, not {tuple(tensor.shape)}")
    try:
        return tensor.view(-1, tensor.shape[-1]) if tensor.dim() > 2 else tensor
    except RuntimeError as error:
        strides = tensor.stride()
        raise ValueError(
            f"{name}'s strides {strides} are no rows of equal distance; call .contiguous() on it"
        ) from error


def output(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """An empty output in the dtype of `like`; fp32 on a CPU, where Triton's interpreter truncates to bf16."""
    return torch.empty(shape, dtype=torch.float32 if like.is_cpu else like.dtype, device=like.device)


def rounded(result: torch.Tensor | None, like: torch.Tensor | None) -> Any:
    """The output in the dtype of `like`: as it is on a GPU, rounded here on a CPU."""
    return None if result is None or like is None else result.to(like.dtype)
