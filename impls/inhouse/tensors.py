"""The tensors of one call: what the kernels take, and the dtype in which they write."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from harness.cases.tensors import TABLE

from .limits import MOST_ROWS, WIDEST
from .problem import EXTRA_ROWS, MASKS, alignments_of

ROW_GRADIENTS = [tensor.name for tensor in TABLE if (tensor.kind, tensor.extent) == ("gradient", "activation")]
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
TRITON_SEES = 16  # Triton sees whether a number is a multiple of it
WIDEST_UNIT = 8  # elements of 16 bits are what a thread loads at once


class Extras(NamedTuple):
    """What a model has around a norm, as the backward takes it: further inputs. None is what there is not.

    All but weight1 and bias are `(rows, cols)` in x's shape, or of a shape that has the same rows.

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
        """All that a launch depends on besides the tensors."""
        return self.p, self.norm_first

    @property
    def rows(self) -> dict[str, torch.Tensor]:
        """Those of x's shape, by name."""
        return {name: tensor for name in EXTRA_ROWS if (tensor := getattr(self, name)) is not None}

    @property
    def matrices(self) -> dict[str, torch.Tensor]:
        """Those that have x's dtype too, by name."""
        return {name: tensor for name, tensor in self.rows.items() if name not in MASKS}

    def as_rows(self, shape: torch.Size) -> Extras:
        """The same with all of x's `shape` as (rows, cols), masks as bytes; raises ValueError for other shapes."""
        views = {}
        for name, tensor in self.rows.items():
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


NO_EXTRAS = Extras()


class NormGradients(NamedTuple):
    """The gradients of a backward, as the case table has them; None is what there is not."""

    dx: torch.Tensor
    dweight: torch.Tensor | None
    dbias: torch.Tensor | None
    dbranch: torch.Tensor | None = None
    dbranch1: torch.Tensor | None = None
    dweight1: torch.Tensor | None = None
    dbias1: torch.Tensor | None = None
    dz: torch.Tensor | None = None

    @classmethod
    def made(cls, likes: dict[str, torch.Tensor | None], make: Callable[[torch.Tensor], torch.Tensor]) -> NormGradients:
        """Each gradient of `likes` that there is, made like its tensor."""
        return cls(**{name: None if like is None else make(like) for name, like in likes.items()})  # pyright: ignore[reportArgumentType]

    def shaped(self, shape: torch.Size) -> NormGradients:
        """The same memory, with gradients of rows in x's shape."""
        views = {name: gradient.view(shape) for name in ROW_GRADIENTS if (gradient := getattr(self, name)) is not None}
        return self._replace(**views)

    def rounded(self, likes: dict[str, torch.Tensor | None]) -> NormGradients:
        """The gradients in the dtypes of `likes`: as they are on a GPU, rounded here on a CPU."""
        return self._make(rounded(gradient, likes[name]) for name, gradient in self._asdict().items())


def gradients_like(
    x: torch.Tensor, weight: torch.Tensor | None, extras: Any, *, has_bias: bool, dx_alone: bool
) -> dict[str, torch.Tensor | None]:
    """By gradient, in the order of `NormGradients`, what has its shape and dtype; None where there is no such.

    `extras` has `weight1`, `mask`, `mask1` and `z`, as `Extras` does; `dx_alone` leaves parameters without gradients.
    """
    weight, weight1 = (None, None) if dx_alone else (weight, extras.weight1)
    return {
        "dx": x,
        "dweight": weight,
        "dbias": weight if has_bias else None,
        "dbranch": None if extras.mask is None else x,
        "dbranch1": None if extras.mask1 is None else x,
        "dweight1": weight1,
        "dbias1": weight1 if has_bias else None,
        "dz": None if extras.z is None else x,
    }


# What the kernels take for what a model has around a norm: of `Extras`, of the gradients, of partial gradients, and the
# strides of rows in the unit of `CallTensors` (of tokens where heads have strides). A field that is None costs nothing.
# `keep_scale` is 1 / (1 - p); `norm_first` is 1 where the gate is behind the norm. The order is that of the kernels'
# parameters.
ExtraOperands = namedtuple(  # pyright: ignore[reportUntypedNamedTuple]  a kernel takes what it is given
    "ExtraOperands",
    "dres dres_stride mask mask1 keep_scale dbranch dbranch1 dy1 dy1_stride weight1 dweight1 dbias1 partial_dweight1"
    " partial_dbias1 z z_stride norm_first bias dz x_head_stride dy_head_stride",
    defaults=(None,) * 21,
)
NO_EXTRA_OPERANDS = ExtraOperands()


@dataclass(frozen=True)
class CallTensors:
    """What one backward reads and writes; x and dy are (rows, cols) as dx is, or both are (tokens, heads, cols)."""

    gradients: NormGradients
    dy: torch.Tensor
    x: torch.Tensor
    weight: torch.Tensor | None
    mean: torch.Tensor | None
    rstd: torch.Tensor
    zero_centred: bool
    extras: Extras = NO_EXTRAS
    scratch: list[torch.Tensor] = field(default_factory=list, init=False, compare=False)  # what `empty` returned

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, cols = self.gradients.dx.shape
        return rows, cols

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What is read, in the order in which all kernels take it."""
        return self.dy, self.x, self.weight, self.mean, self.rstd

    @property
    def unit(self) -> int:
        """The elements in which columns and strides of rows are counted."""
        return self.unit_where_triton_sees(TRITON_SEES)

    def unit_where_triton_sees(self, multiple: int) -> int:
        """The unit where Triton sees for itself that multiples of so many elements are that: then it is 1."""
        return unit_of(self.shape[1], *self._strides.values(), seen=multiple)

    @property
    def alignments(self) -> int:
        """How many distances from a multiple of 16 bytes rows begin at, where all tensors' do alike; else 1.

        Contiguous rows of 16 bits that 8 does not divide: that of row r is r * cols % 8 elements in each. With a
        residual all are to be at a multiple again behind the last row, so that whole 16 bytes can be read.
        """
        dx = self.gradients.dx
        matrices = dx, self.dy, self.x, *self.extras.matrices.values()
        alone = all(tensor is None for tensor in self.extras._replace(dres=None).tensors)
        if self.x.itemsize != 2 or not alone or not all(map(torch.Tensor.is_contiguous, matrices)):
            return 1
        if any(not matrix.is_meta and matrix.data_ptr() % 16 for matrix in matrices):
            return 1
        ends_within = dx.numel() % WIDEST_UNIT and self.extras.dres is not None
        return 1 if ends_within else alignments_of(self.shape[1])

    @property
    def _strides(self) -> dict[str, int]:
        """Distances of rows, or of tokens and heads, by what they are of."""
        strides = {name: tensor.stride(0) for name, tensor in self.extras.matrices.items()}
        strides |= {"dy": self.dy.stride(0), "x": self.x.stride(0)}
        if self.x.dim() == 3:
            strides |= {"dy_head": self.dy.stride(1), "x_head": self.x.stride(1)}
        return strides

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Rows, columns, and the row strides of dy and x, in the order in which all kernels take them; in units."""
        rows, cols = self.shape
        return rows, cols // self.unit, self.dy.stride(0) // self.unit, self.x.stride(0) // self.unit

    @property
    def constants(self) -> dict[str, Any]:
        """The constants that the kernels of all regimes but the shared one take; HEADS of a token, else 1."""
        heads = self.x.shape[1] if self.x.dim() == 3 else 1
        return {"ZERO_CENTRED": self.zero_centred, "HEADS": heads, "UNIT": self.unit}

    @property
    def parameter_gradients(self) -> int:
        """How many gradients have partial sums: dweight, or dweight and dbias; twice as many of two norms."""
        return (1 if self.gradients.dbias is None else 2) * (1 if self.gradients.dweight1 is None else 2)

    def partials(self, number: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Empty memory for so many rows of partial dweight and dbias, fp32."""
        return self._partial(self.gradients.dweight, number), self._partial(self.gradients.dbias, number)

    def extra_operands(self, number: int = 0) -> Any:
        """What the kernels take for what is around the norm, with so many rows of partial gradients."""
        extras, gradients = self.extras, self.gradients
        if extras is NO_EXTRAS and self.x.dim() == 2:
            return NO_EXTRA_OPERANDS
        given = extras._asdict() | gradients._asdict()
        given |= {f"{name}_stride": stride // self.unit for name, stride in self._strides.items()}
        given |= {f"partial_{name}": self._partial(given[name], number) for name in ("dweight1", "dbias1")}
        given["keep_scale"] = None if extras.mask is None else 1 / (1 - extras.p)
        given["norm_first"] = 1 if extras.norm_first else None
        given["bias"] = extras.bias if extras.norm_first else None
        return ExtraOperands(**{name: given.get(name) for name in ExtraOperands._fields})

    def _partial(self, gradient: torch.Tensor | None, number: int) -> torch.Tensor | None:
        return None if gradient is None or not number else self.empty((number, self.shape[1]))

    def empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Memory of this call alone, fp32, whatever it holds."""
        memory = torch.empty(shape, dtype=torch.float32, device=self.x.device)
        self.scratch.append(memory)
        return memory


def unit_of(*numbers: int, seen: int = TRITON_SEES) -> int:
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
    if type(rows) is int and rows > MOST_ROWS:  # what a compiler only names is looked at when it runs
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
        _check_vector(name, vector, cols, *DTYPES)
    statistics = statistics or {}
    for name, vector in statistics.items():
        _check_vector(name, vector, rows, torch.float32)
    everything = (*matrices.values(), *parameters.values(), *statistics.values())
    if any(tensor is not None and tensor.device != x.device for tensor in everything):
        raise ValueError(f"all tensors must be on x's device, {x.device}")


def _check_vector(name: str, vector: torch.Tensor | None, length: int, *dtypes: torch.dtype) -> None:
    if vector is None:
        return
    if vector.dtype not in dtypes:
        names = "bf16, fp16 or fp32" if len(dtypes) > 1 else "fp32"
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


def rows_or_heads(**matrices: torch.Tensor) -> list[torch.Tensor]:
    """The same memory as (rows, cols); where rows have no equal distance in all, as (tokens, heads, cols)."""
    try:
        return [as_rows(each, name) for name, each in matrices.items()]
    except ValueError:
        if any(each.dim() < 3 for each in matrices.values()):
            raise
        try:
            return [each.view(-1, *each.shape[-2:]) for each in matrices.values()]
        except RuntimeError:
            pass
        raise


def output(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """An empty output in the dtype of `like`; fp32 on a CPU, where Triton's interpreter truncates to bf16."""
    return torch.empty(shape, dtype=torch.float32 if like.is_cpu else like.dtype, device=like.device)


def rounded(result: torch.Tensor | None, like: torch.Tensor | None) -> Any:
    """The output in the dtype of `like`: as it is on a GPU, rounded here on a CPU."""
    return None if result is None or like is None else result.to(like.dtype)
