"""The inputs that find faults: what the numbers are, and how they lie in memory, under a name each.

A kind changes the usual random inputs of a case. Importable without torch: tensors are only handed through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Layout = Literal["contiguous", "strided x", "expanded dy", "summed dy", "transposed dy", "misaligned", "3-d"]
Only = Literal["any", "layer", "weight", "bias", "residual", "gated"]  # the cases that a kind makes sense for


@dataclass(frozen=True)
class Drawn:
    """The usual inputs of a case by name, to be changed in place: x, dy `(rows, cols)`, weight, bias `(cols)`, ...

    `xhat()` normalises x as it is now, in fp64; `narrow` is fp16, whose range is small.
    """

    tensors: Mapping[str, torch.Tensor]
    xhat: Callable[[], torch.Tensor]
    narrow: bool

    @property
    def x(self) -> torch.Tensor:
        return self.tensors["x"]

    @property
    def dy(self) -> torch.Tensor:
        return self.tensors["dy"]

    def those(self, *names: str) -> list[torch.Tensor]:
        """Those of these inputs that the case has."""
        return [self.tensors[name] for name in names if name in self.tensors]

    def scaled(self, tensor: torch.Tensor, exponent: int, narrow_exponent: int) -> None:
        """Multiply by a power of two; by another in fp16."""
        tensor.mul_(2.0 ** (narrow_exponent if self.narrow else exponent))


@dataclass(frozen=True)
class InputKind:
    """One kind of inputs: `finds` is the fault that it is there to find, `change` what it does to the usual ones."""

    name: str
    finds: str
    change: Callable[[Drawn], object] = lambda _: None
    layout: Layout = "contiguous"
    only: Only = "any"

    @property
    def contiguous(self) -> bool:
        """Whether x and dy are contiguous in memory, wherever they begin and whatever leading dimensions they have."""
        return self.layout in ("contiguous", "misaligned", "3-d")

    def suits(self, *, norm: str, weight: bool, bias: bool, features: Collection[str] = ()) -> bool:
        """Whether a case has what this kind changes; heads of a projection have a layout of their own."""
        if "qk" in features and self.layout not in ("contiguous", "misaligned"):
            return False
        has = {"layer": norm == "layer", "weight": weight, "bias": bias, "residual": "residual" in features}
        has["gated"] = any(feature.startswith("gated") for feature in features)
        return self.only == "any" or has[self.only]


def _correlated(drawn: Drawn) -> None:
    for dy in drawn.those("dy", "dy1"):
        dy.copy_(3 * drawn.xhat() + dy)


def _each(*names: str, change: Callable[[torch.Tensor], object]) -> Callable[[Drawn], object]:
    """Changes those of these inputs that a case has."""
    return lambda drawn: [change(tensor) for tensor in drawn.those(*names)]


def _each_weight(change: Callable[[torch.Tensor], object]) -> Callable[[Drawn], object]:
    return _each("weight", "weight1", change=change)


def _tiny(weight: torch.Tensor) -> None:
    """One in four, at and below the eps that some kernels clamp to."""
    for start, tiny in enumerate((1e-5, -1e-5, 1e-3, -1e-7)):
        weight[4 * start :: 16] = tiny


def _outliers(drawn: Drawn) -> None:
    drawn.x[:, 3::97] *= 100
    drawn.dy[:, 5::101] *= 100


def _subnormal(drawn: Drawn, tensor: torch.Tensor) -> None:
    """Below the smallest normal number of bf16 and fp32 (2^-126) or of fp16 (2^-14), with a few bits left."""
    drawn.scaled(tensor, -129, -17)


def _spoil(tensor: torch.Tensor, value: float) -> None:
    """One element, in a row of the middle and not in the first column."""
    rows, cols = tensor.shape
    if rows:
        tensor[rows // 2, cols // 3] = value


INPUT_KINDS: dict[str, InputKind] = {
    kind.name: kind
    for kind in (
        InputKind("normal", "a wrong formula"),
        InputKind("correlated", "a row correction left out or wrong, which independent noise hides", _correlated),
        InputKind("mean-10", "mean / sigma of 10: variance in one pass", lambda d: d.x.add_(10.0), only="layer"),
        InputKind("mean-100", "mean / sigma of 100: variance in one pass", lambda d: d.x.add_(100.0), only="layer"),
        InputKind("mean-1000", "mean / sigma of 1000: variance in one pass", lambda d: d.x.add_(1000.0), only="layer"),
        InputKind(
            "zero-weights", "a division by the weight", _each_weight(lambda weight: weight[::4].zero_()), only="weight"
        ),
        InputKind("tiny-weights", "a division by the weight that is clamped", _each_weight(_tiny), only="weight"),
        InputKind(
            "large-bias",
            "xhat recovered from a y that the bias has drowned",
            _each("bias", "bias1", change=lambda bias: bias.add_(100.0)),
            only="bias",
        ),
        InputKind(
            "large-residual",
            "a residual's gradient that goes through the norm",
            _each("dres", change=lambda dres: dres.mul_(1000)),
            only="residual",
        ),
        # A gate of 100 and more either way: exp of that overflows fp32.
        InputKind(
            "large-gates", "silu by an exp that overflows", _each("z", change=lambda z: z.mul_(100)), only="gated"
        ),
        InputKind("outliers", "sums or products in a dtype of little range or precision", _outliers),
        # Half is exact in every dtype, and so is every partial sum of it: rstd is that of eps alone.
        InputKind("constant-rows", "eps left out, or a variance that cancels", lambda d: d.x[::7].fill_(0.5)),
        InputKind("zero-rows", "eps left out", lambda d: d.x[::7].zero_()),
        InputKind("large-x", "x of 2^55, squares of 2^110: sums that overflow", lambda d: d.scaled(d.x, 55, 8)),
        InputKind(
            "small-x", "x of 2^-60, below eps: eps left out or in the wrong place", lambda d: d.scaled(d.x, -60, -8)
        ),
        InputKind("large-dy", "dy of 2^60: sums that overflow", lambda d: d.scaled(d.dy, 60, 4)),
        InputKind("small-dy", "dy of 2^-60: products that underflow", lambda d: d.scaled(d.dy, -60, -8)),
        InputKind("subnormal-x", "subnormal numbers flushed to zero on the way in", lambda d: _subnormal(d, d.x)),
        InputKind("subnormal-dy", "subnormal numbers flushed to zero on the way out", lambda d: _subnormal(d, d.dy)),
        InputKind("nan-x", "a NaN swallowed, or spread to other rows", lambda d: _spoil(d.x, float("nan"))),
        InputKind("inf-x", "an Inf swallowed, or spread to other rows", lambda d: _spoil(d.x, float("inf"))),
        InputKind("nan-dy", "a NaN swallowed, or spread to other rows", lambda d: _spoil(d.dy, float("nan"))),
        InputKind("inf-dy", "an Inf swallowed, or spread to other rows", lambda d: _spoil(d.dy, float("inf"))),
        InputKind("strided-x", "rows of x taken to lie side by side", layout="strided x"),
        InputKind("expanded-dy", "a dy that is one row in memory taken for many", layout="expanded dy"),
        InputKind("summed-dy", "a dy that is one number in memory (what y.sum() sends back)", layout="summed dy"),
        InputKind("transposed-dy", "columns of dy taken to lie side by side", layout="transposed dy"),
        InputKind("misaligned", "wide loads from addresses that do not allow them", layout="misaligned"),
        InputKind("3-d", "leading dimensions taken for rows and columns", layout="3-d"),
    )
}
