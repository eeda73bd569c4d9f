"""The tensors of one call: what the kernels take, and the dtype in which they write."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .limits import MOST_ROWS, WIDEST
from .problem import BESIDE, MASKS, alignments_of

OF_ROWS = ("dx", "dbranch", "dbranch1", "dz")  # gradients in x's shape
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SEEN = 16  # multiples of it Triton sees
WIDEST_UNIT = 8  # elements of 16 bits are what a thread loads at once


class Around(NamedTuple):
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
    dy1: torch.Tensor | None = None
    weight1: torch.Tensor | None = None
    z: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    p: float = 0.0
    norm_first: bool = False

    @property
    def tensors(self) -> tuple[torch.Tensor | None, ...]:
        """All tensors, in one order."""
        return self[:-2]

    @property
    def decided_by(self) -> tuple[Hashable, ...]:
        """All that a launch depends on beside the tensors."""
        return self.p, self.norm_first

    @property
    def matrices(self) -> dict[str, torch.Tensor]:
        """Those that have x's dtype, by name."""
        named = {"dres": self.dres, "dy1": self.dy1, "z": self.z}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def as_rows(self, shape: torch.Size) -> Around:
        """The same with all of x's `shape` as (rows, cols), masks as bytes; raises ValueError for other shapes."""
        views = {}
        for name in BESIDE:
            tensor = getattr(self, name)
            if tensor is None:
                continue
            if tensor.shape != shape:
                raise ValueError(f"{name} must have x's shape {tuple(shape)}, not {tuple(tensor.shape)}")
            views[name] = as_rows(tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor, name)
        return self._replace(**views) if views else self

    def check(self, weight: torch.Tensor | None, *, has_bias: bool) -> None:
        """Raise ValueError, with the reason, for what does not fit together."""
        for name in MASKS:
            mask = getattr(self, name)
            if mask is not None and (mask.dtype != torch.uint8 or not mask.is_contiguous()):
                raise ValueError(f"{name} must be contiguous uint8 or bool, not {mask.dtype} {mask.stride()}")
        if not 0 <= self.p < 1 or (self.mask is None and (self.p or self.mask1 is not None)):
            raise ValueError(f"p must be at least 0 and below 1, and needs a mask, not {self.p}")
        if (self.weight1 is not None) != (self.dy1 is not None and weight is not None):
            raise ValueError("a second norm has dy1, and weight1 if the first norm has a weight")
        if self.norm_first and self.z is None:
            raise ValueError("norm_first says where a gate is, which needs z")
        if self.norm_first and (self.bias is not None) != has_bias:
            raise ValueError("a gate behind a norm with a bias needs the bias, and none without")

    def outputs(self, like: torch.Tensor, shape: tuple[int, ...], *, has_bias: bool) -> MoreGradients:
        """Empty outputs for the gradients that a plain norm does not have."""
        if self is NO_MORE:
            return NO_MORE_GRADIENTS
        cols = shape[-1:]
        return MoreGradients(
            dbranch=None if self.mask is None else output(like, shape),
            dbranch1=None if self.mask1 is None else output(like, shape),
            dweight1=None if self.weight1 is None else output(self.weight1, cols),
            dbias1=output(self.weight1, cols) if self.weight1 is not None and has_bias else None,
            dz=None if self.z is None else output(like, shape),
        )


NO_MORE = Around()


class MoreGradients(NamedTuple):
    """The gradients that a plain norm does not have; None is what there is not."""

    dbranch: torch.Tensor | None = None
    dbranch1: torch.Tensor | None = None
    dweight1: torch.Tensor | None = None
    dbias1: torch.Tensor | None = None
    dz: torch.Tensor | None = None


NO_MORE_GRADIENTS = MoreGradients()


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

    def shaped(self, shape: torch.Size) -> AroundGradients:
        """The same memory, with gradients of rows in x's shape."""
        views = {name: gradient.view(shape) for name in OF_ROWS if (gradient := getattr(self, name)) is not None}
        return self._replace(**views) if views else self

    def rounded(self, x: torch.Tensor, weight: torch.Tensor | None, weight1: torch.Tensor | None) -> AroundGradients:
        """The gradients in the dtypes of what they are of: as they are on a GPU, rounded here on a CPU."""
        of_weight = {"dweight": weight, "dbias": weight, "dweight1": weight1, "dbias1": weight1}
        return self._make(rounded(getattr(self, name), of_weight.get(name, x)) for name in self._fields)


class Beside(NamedTuple):
    """What the kernels take for what a model has around a norm; a field that is None costs nothing.

    Strides are those of rows, in the unit of `Tensors`; with distances of heads, those of x and dy are of tokens.
    `kept` is 1 / (1 - p); `norm_first` is 1 where the gate is behind the norm.
    """

    dres: Any = None
    dres_stride: int | None = None
    mask: Any = None
    mask1: Any = None
    kept: float | None = None
    dbranch: Any = None
    dbranch1: Any = None
    dy1: Any = None
    dy1_stride: int | None = None
    weight1: Any = None
    dweight1: Any = None
    dbias1: Any = None
    partial_dweight1: Any = None
    partial_dbias1: Any = None
    z: Any = None
    z_stride: int | None = None
    norm_first: int | None = None
    bias: Any = None
    dz: Any = None
    x_head_stride: int | None = None
    dy_head_stride: int | None = None


NOTHING = Beside()


@dataclass(frozen=True)
class Tensors:
    """What one backward reads and writes; dx is (rows, cols), x and dy too, or both are (tokens, heads, cols)."""

    dx: torch.Tensor
    dweight: torch.Tensor | None
    dbias: torch.Tensor | None
    dy: torch.Tensor
    x: torch.Tensor
    weight: torch.Tensor | None
    mean: torch.Tensor | None
    rstd: torch.Tensor
    zero_centred: bool
    around: Around = NO_MORE
    more: MoreGradients = NO_MORE_GRADIENTS
    scratch: list[torch.Tensor] = field(default_factory=list, init=False, compare=False)  # what `empty` gave out

    @property
    def cols(self) -> int:
        """Columns of a row."""
        return self.dx.shape[1]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What is read, in the order in which all kernels take it."""
        return self.dy, self.x, self.weight, self.mean, self.rstd

    @property
    def unit(self) -> int:
        """The elements in which columns and strides of rows are counted."""
        return self.unit_where_seen(SEEN)

    def unit_where_seen(self, multiple: int) -> int:
        """The unit where Triton sees for itself that multiples of so many elements are that: then it is 1."""
        return unit_of(self.cols, *self._strides.values(), seen=multiple)

    @property
    def alignments(self) -> int:
        """How many distances from a multiple of 16 bytes rows begin at, where all tensors' do alike; else 1.

        Contiguous rows of 16 bits that 8 does not divide: that of row r is r * cols % 8 elements in each. Behind the
        last row all are to be at a multiple again, so that whole 16 bytes can be read.
        """
        matrices = self.dx, self.dy, self.x, *self.around.matrices.values()
        alone = all(tensor is None for tensor in self.around._replace(dres=None).tensors)
        if self.x.itemsize != 2 or not alone or not all(map(torch.Tensor.is_contiguous, matrices)):
            return 1
        if any(not matrix.is_meta and matrix.data_ptr() % 16 for matrix in matrices):
            return 1
        return 1 if self.dx.numel() % WIDEST_UNIT else alignments_of(self.cols)

    @property
    def _strides(self) -> dict[str, int]:
        """Distances of rows, or of tokens and heads, by what they are of."""
        strides = {name: tensor.stride(0) for name, tensor in self.around.matrices.items()}
        strides |= {"dy": self.dy.stride(0), "x": self.x.stride(0)}
        if self.x.dim() == 3:
            strides |= {"dy_head": self.dy.stride(1), "x_head": self.x.stride(1)}
        return strides

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Rows, columns, and the row strides of dy and x, in the order in which all kernels take them; in units."""
        rows, cols = self.dx.shape
        return rows, cols // self.unit, self.dy.stride(0) // self.unit, self.x.stride(0) // self.unit

    @property
    def heads(self) -> int:
        """Rows of a token, where tokens have a distance of their own; else 1."""
        return self.x.shape[1] if self.x.dim() == 3 else 1

    @property
    def gradients(self) -> int:
        """How many gradients have partial sums: dweight, or dweight and dbias; twice as many of two norms."""
        return (1 if self.dbias is None else 2) * (1 if self.more.dweight1 is None else 2)

    def partials(self, number: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Empty memory for so many rows of partial dweight and dbias, fp32."""
        return self._partial(self.dweight, number), self._partial(self.dbias, number)

    def beside(self, number: int = 0) -> Beside:
        """What the kernels take for what is around the norm, with so many rows of partial gradients."""
        around, more = self.around, self.more
        if around is NO_MORE and self.x.dim() == 2:
            return NOTHING
        strides = {name: stride // self.unit for name, stride in self._strides.items()}
        return Beside(
            dres=around.dres,
            dres_stride=strides.get("dres"),
            mask=around.mask,
            mask1=around.mask1,
            kept=None if around.mask is None else 1 / (1 - around.p),
            dbranch=more.dbranch,
            dbranch1=more.dbranch1,
            dy1=around.dy1,
            dy1_stride=strides.get("dy1"),
            weight1=around.weight1,
            dweight1=more.dweight1,
            dbias1=more.dbias1,
            partial_dweight1=self._partial(more.dweight1, number),
            partial_dbias1=self._partial(more.dbias1, number),
            z=around.z,
            z_stride=strides.get("z"),
            norm_first=1 if around.norm_first else None,
            bias=around.bias if around.norm_first else None,
            dz=more.dz,
            x_head_stride=strides.get("x_head"),
            dy_head_stride=strides.get("dy_head"),
        )

    def _partial(self, gradient: torch.Tensor | None, number: int) -> torch.Tensor | None:
        return None if gradient is None or not number else self.empty((number, self.cols))

    def empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Memory of this call alone, fp32, whatever it holds."""
        memory = torch.empty(shape, dtype=torch.float32, device=self.x.device)
        self.scratch.append(memory)
        return memory


def unit_of(*numbers: int, seen: int = SEEN) -> int:
    """The elements in which columns and strides are counted: a power of two that divides all of them, up to 8.

    Triton sees of a number whether it is a multiple of 16, and of its product with a constant what that divides.
    Without, rows of 2648 columns would be loaded element by element, although each begins on 16 bytes. It is 1 where
    Triton sees it anyway.
    """
    divisor = math.gcd(*numbers)
    # A product has 32 bits where the number has.
    return 1 if divisor % seen == 0 or max(numbers) >= 1 << 31 else min(divisor & -divisor, WIDEST_UNIT)


def check(
    matrices: dict[str, torch.Tensor],
    parameters: dict[str, torch.Tensor | None],
    statistics: dict[str, torch.Tensor | None] | None = None,
    *,
    has_bias: bool,
    zero_centred: bool,
) -> None:
    """Raise ValueError, with the reason, for what the kernels do not take.

    Matrices `(rows, cols)` or `(tokens, heads, cols)`, x the first, have one dtype and unit column stride; parameters
    `(cols)`, weight the first, and statistics `(rows)` are contiguous, the latter fp32; all are on one device.
    """
    x, *_ = matrices.values()
    weight, *_ = parameters.values()
    rows, cols = math.prod(x.shape[:-1]), x.shape[-1]
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
        if cols > 1 and matrix.stride(-1) != 1 and rows:  # of no rows any strides are contiguous
            raise ValueError(f"{name} must have unit column stride, not {matrix.stride(-1)}; call .contiguous() on it")
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


def rows_or_heads(x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same memory as (rows, cols); where rows have no equal distance in both, as (tokens, heads, cols)."""
    try:
        return as_rows(x, "x"), as_rows(dy, "dy")
    except ValueError:
        if x.dim() < 3:
            raise
        try:
            return x.view(-1, *x.shape[-2:]), dy.view(-1, *x.shape[-2:])
        except RuntimeError:
            pass
        raise


def output(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """An empty output in the dtype of `like`; fp32 on a CPU, where Triton's interpreter truncates to bf16."""
    return torch.empty(shape, dtype=torch.float32 if like.is_cpu else like.dtype, device=like.device)


def rounded(result: torch.Tensor | None, like: torch.Tensor | None) -> Any:
    """The output in the dtype of `like`: as it is on a GPU, rounded here on a CPU."""
    return None if result is None or like is None else result.to(like.dtype)
