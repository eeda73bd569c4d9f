"""The inputs that find faults: what the numbers are, and how they lie in memory, under a name each.

A kind changes the usual random inputs of a case. Importable without torch: tensors are only handed through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Layout = Literal[
    "contiguous",
    "strided x",
    "every other x",
    "transposed x",
    "sliced x",
    "expanded dy",
    "summed dy",
    "transposed dy",
    "strided weight",
    "misaligned weight",
    "misaligned",
    "3-d",
]
Only = Literal["any", "layer", "weight", "bias", "residual", "gated"]  # the cases that a kind makes sense for


@dataclass(frozen=True)
class Drawn:
    """The usual inputs of a case by name, to be changed in place: x, dy `(rows, cols)`, weight, bias `(cols)`, ...

    `xhat()` normalises x as it is now, in fp64; `narrow` is fp16, whose range is small.
    """

    tensors: Mapping[str, torch.Tensor]
    xhat: Callable[[], torch.Tensor]
    narrow: bool


Change = Callable[[Drawn], object]  # in place


@dataclass(frozen=True)
class InputKind:
    """One kind of inputs: `finds` is the fault that it is there to find, `change` what it does to the usual ones."""

    name: str
    finds: str
    change: Change = lambda _drawn: None
    layout: Layout = "contiguous"
    only: Only = "any"

    @property
    def contiguous(self) -> bool:
        """Whether each input is contiguous in memory, wherever it begins and whatever leading dimensions it has."""
        return self.layout in ("contiguous", "misaligned weight", "misaligned", "3-d")

    def suits(self, *, norm: str, weight: bool, bias: bool, features: Collection[str] = ()) -> bool:
        """Whether a case has what this kind changes; heads of a projection have a layout of their own."""
        if "qk" in features and not (self.layout in ("contiguous", "misaligned") or self.only == "weight"):
            return False
        has = {"layer": norm == "layer", "weight": weight, "bias": bias, "residual": "residual" in features}
        has["gated"] = any(feature.startswith("gated") for feature in features)
        return self.only == "any" or has[self.only]


def _each(change: Callable[[torch.Tensor], object], *names: str) -> Change:
    """Change those of these inputs that the case has."""
    return lambda drawn: [change(drawn.tensors[name]) for name in names if name in drawn.tensors]


def _plus(number: float, *names: str) -> Change:
    return _each(lambda tensor: tensor.add_(number), *names)


def _times(number: float, *names: str) -> Change:
    return _each(lambda tensor: tensor.mul_(number), *names)


def _every(step: int, number: float, *names: str) -> Change:
    """Put a number into every so many rows, or elements of a vector."""
    return _each(lambda tensor: tensor[::step].fill_(number), *names)


def _correlated(drawn: Drawn) -> None:
    _each(lambda dy: dy.copy_(3 * drawn.xhat() + dy), "dy", "dy1")(drawn)


def _tiny_weights(drawn: Drawn) -> None:
    """One in four, at and below the eps that some kernels clamp to."""
    for weight in (drawn.tensors[name] for name in ("weight", "weight1") if name in drawn.tensors):
        for start, tiny in enumerate((1e-5, -1e-5, 1e-3, -1e-7)):
            weight[4 * start :: 16] = tiny


def _outliers(drawn: Drawn) -> None:
    drawn.tensors["x"][:, 3::97] *= 100
    drawn.tensors["dy"][:, 5::101] *= 100


def _scaled(name: str, exponent: int, narrow_exponent: int) -> Change:
    """Multiply by a power of two; by another in fp16, whose range is small."""
    return lambda drawn: drawn.tensors[name].mul_(2.0 ** (narrow_exponent if drawn.narrow else exponent))


def _spoilt(name: str, value: float) -> Change:
    """One element, in a row of the middle and not in the first column."""

    def spoil(tensor: torch.Tensor) -> None:
        row = tensor[len(tensor) // 2 :][:1] if tensor.dim() > 1 else tensor
        row[..., tensor.shape[-1] // 3] = value

    return _each(spoil, name)


# Below the smallest normal number of bf16 and fp32 (2^-126) or of fp16 (2^-14), with a few bits left.
SUBNORMAL = (-129, -17)

INPUT_KINDS: dict[str, InputKind] = {
    kind.name: kind
    for kind in (
        InputKind("normal", "a wrong formula"),
        InputKind("correlated", "a row correction left out or wrong, which independent noise hides", _correlated),
        InputKind("mean-10", "mean / sigma of 10: variance in one pass", _plus(10.0, "x"), only="layer"),
        InputKind("mean-100", "mean / sigma of 100: variance in one pass", _plus(100.0, "x"), only="layer"),
        InputKind("mean-1000", "mean / sigma of 1000: variance in one pass", _plus(1000.0, "x"), only="layer"),
        InputKind("zero-weights", "a division by the weight", _every(4, 0.0, "weight", "weight1"), only="weight"),
        InputKind("tiny-weights", "a division by the weight that is clamped", _tiny_weights, only="weight"),
        InputKind(
            "large-bias",
            "xhat recovered from a y that the bias has drowned",
            _plus(100.0, "bias", "bias1"),
            only="bias",
        ),
        InputKind(
            "large-residual", "a residual's gradient that goes through the norm", _times(1000, "dres"), only="residual"
        ),
        # A gate of 100 and more either way: exp of that overflows fp32.
        InputKind("large-gates", "silu by an exp that overflows", _times(100, "z"), only="gated"),
        InputKind("outliers", "sums or products in a dtype of little range or precision", _outliers),
        # Half is exact in every dtype, and so is every partial sum of it: rstd is that of eps alone.
        InputKind("constant-rows", "eps left out, or a variance that cancels", _every(7, 0.5, "x")),
        InputKind("zero-rows", "eps left out", _every(7, 0.0, "x")),
        InputKind("large-x", "x of 2^55, squares of 2^110: sums that overflow", _scaled("x", 55, 8)),
        InputKind("small-x", "x of 2^-60, below eps: eps left out or in the wrong place", _scaled("x", -60, -8)),
        InputKind("large-dy", "dy of 2^60: sums that overflow", _scaled("dy", 60, 4)),
        InputKind("small-dy", "dy of 2^-60: products that underflow", _scaled("dy", -60, -8)),
        InputKind("subnormal-x", "subnormal numbers flushed to zero on the way in", _scaled("x", *SUBNORMAL)),
        InputKind("subnormal-dy", "subnormal numbers flushed to zero on the way out", _scaled("dy", *SUBNORMAL)),
        InputKind("nan-x", "a NaN swallowed, or spread to other rows", _spoilt("x", math.nan)),
        InputKind("inf-x", "an Inf swallowed, or spread to other rows", _spoilt("x", math.inf)),
        InputKind("nan-dy", "a NaN swallowed, or spread to other rows", _spoilt("dy", math.nan)),
        InputKind("inf-dy", "an Inf swallowed, or spread to other rows", _spoilt("dy", math.inf)),
        InputKind("nan-weight", "a NaN swallowed", _spoilt("weight", math.nan), only="weight"),
        InputKind("strided-x", "rows of x taken to lie side by side", layout="strided x"),
        InputKind(
            "every-other-x", "columns of x taken to lie side by side, in rows that do not", layout="every other x"
        ),
        InputKind("transposed-x", "columns of x taken to lie side by side", layout="transposed x"),
        InputKind("sliced-x", "one stride for leading dimensions of x that have two", layout="sliced x"),
        InputKind("expanded-dy", "a dy that is one row in memory taken for many", layout="expanded dy"),
        InputKind("summed-dy", "a dy that is one number in memory (what y.sum() sends back)", layout="summed dy"),
        InputKind("transposed-dy", "columns of dy taken to lie side by side", layout="transposed dy"),
        InputKind("strided-weight", "a weight taken to lie side by side", layout="strided weight", only="weight"),
        InputKind(
            "misaligned-weight",
            "wide loads of a weight that begins anywhere",
            layout="misaligned weight",
            only="weight",
        ),
        InputKind("misaligned", "wide loads from addresses that do not allow them", layout="misaligned"),
        InputKind("3-d", "leading dimensions taken for rows and columns", layout="3-d"),
    )
}
