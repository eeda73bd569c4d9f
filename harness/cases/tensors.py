"""The tensors of a case: one line for each, in TABLE.

Drawing inputs, guards, restoring, bytes moved, the same-traffic kernel, comparing, determinism and the columns of a
report go over this table. A new tensor is a line here, its formula in `harness.verify.reference` (none, if it is added
to a gradient), and the adapters that handle it. Importable without torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from harness.cases.case import ITEM_BYTES, NormCase, Stored

Extent = Literal["activation", "per column", "per row"]  # (rows, cols), (cols) and (rows)
TensorKind = Literal["input", "statistic", "gradient"]


@dataclass(frozen=True)
class CaseTensor:
    """One tensor of a case.

    An input is drawn from N(`centre`, `spread`), a uint8 one is a mask: 1 where dropout keeps an element, 0 where it
    drops it. A statistic is what a forward saves of what it normalises; a gradient is what the backward returns.
    `dtype` says whose dtype it has: the case's, its weight's, or its own. `present` says which cases have it. `traffic`
    is False where no backward needs to read it. `heading` is the short name of a gradient in a report. An input that is
    `added_to` a gradient is a term of it, as the gradient of a residual is of dx.
    """

    name: str
    kind: TensorKind
    extent: Extent
    dtype: Literal["case", "weight", "fp32", "uint8"]
    present: Callable[[NormCase], bool] = lambda _case: True
    centre: Callable[[NormCase], float] = lambda _case: 0.0
    spread: float = 1.0
    traffic: bool = True
    added_to: str | None = None
    heading: str | None = None

    def shape(self, case: NormCase) -> tuple[int, ...]:
        """Its shape in a case."""
        shapes = {"activation": (case.rows, case.cols), "per column": (case.cols,), "per row": (case.rows,)}
        return shapes[self.extent]

    def dtype_in(self, case: NormCase) -> Stored:
        """Its dtype in a case."""
        if self.dtype == "case":
            return case.dtype
        return case.weight_dtype if self.dtype == "weight" else self.dtype

    def size_bytes(self, case: NormCase) -> int:
        """Its size in a case, in bytes."""
        return math.prod(self.shape(case)) * ITEM_BYTES[self.dtype_in(case)]


def _centre(case: NormCase) -> float:
    return 0.0 if case.zero_centred else 1.0


def _when(*features: str, having: Literal["weight", "bias"] | None = None) -> Callable[[NormCase], bool]:
    """Whether a case has all of these features, and the parameter."""
    return lambda case: set(features) <= set(case.features) and (having is None or getattr(case, having))


def _learned(*features: str, having: Literal["weight", "bias"]) -> Callable[[NormCase], bool]:
    """The same of a parameter that has a gradient."""
    return lambda case: "frozen" not in case.features and _when(*features, having=having)(case)


def _is_gated(case: NormCase) -> bool:
    return case.gate_first or "gated-norm-first" in case.features


# The inputs in the order in which they are drawn, those of a plain case first. The mean of x is not 0, so that a
# LayerNorm that forgets the mean is seen. The weight is near 1 as in a trained model: one near 0 would condemn every
# backward that divides by it.
TABLE: tuple[CaseTensor, ...] = (
    CaseTensor("x", "input", "activation", "case", centre=lambda _case: 0.25),
    CaseTensor("dy", "input", "activation", "case"),
    CaseTensor("weight", "input", "per column", "weight", _when(having="weight"), centre=_centre, spread=0.1),
    CaseTensor("bias", "input", "per column", "weight", _when(having="bias"), spread=0.1, traffic=False),
    CaseTensor("dres", "input", "activation", "case", _when("residual"), added_to="dx"),
    CaseTensor("mask", "input", "activation", "uint8", _when("dropout")),
    CaseTensor("mask1", "input", "activation", "uint8", _when("dropout", "parallel-tied")),
    CaseTensor("dy1", "input", "activation", "case", _when("parallel")),
    CaseTensor(
        "weight1", "input", "per column", "weight", _when("parallel", having="weight"), centre=_centre, spread=0.1
    ),
    CaseTensor("bias1", "input", "per column", "weight", _when("parallel", having="bias"), spread=0.1, traffic=False),
    CaseTensor("z", "input", "activation", "case", _is_gated),
    CaseTensor("mean", "statistic", "per row", "fp32", lambda case: case.norm == "layer"),
    CaseTensor("rstd", "statistic", "per row", "fp32"),
    CaseTensor("dx", "gradient", "activation", "case", heading="dx"),
    CaseTensor("dweight", "gradient", "per column", "weight", _learned(having="weight"), heading="dw"),
    CaseTensor("dbias", "gradient", "per column", "weight", _learned(having="bias"), heading="db"),
    CaseTensor("dbranch", "gradient", "activation", "case", _when("dropout"), heading="da"),
    CaseTensor("dbranch1", "gradient", "activation", "case", _when("dropout", "parallel-tied"), heading="da1"),
    CaseTensor("dweight1", "gradient", "per column", "weight", _learned("parallel", having="weight"), heading="dw1"),
    CaseTensor("dbias1", "gradient", "per column", "weight", _learned("parallel", having="bias"), heading="db1"),
    CaseTensor("dz", "gradient", "activation", "case", _is_gated, heading="dz"),
)

# The gradients of outputs that are normalised: a backward that declares `in_place` may overwrite them.
OUTPUT_GRADIENTS = ("dy", "dy1")


def tensors_of(case: NormCase, *kinds: TensorKind) -> list[CaseTensor]:
    """The tensors that a case has, of these kinds; of all kinds where none is named."""
    return [tensor for tensor in TABLE if tensor.present(case) and (not kinds or tensor.kind in kinds)]


def inputs_of(case: NormCase) -> list[CaseTensor]:
    """What is drawn for a case."""
    return tensors_of(case, "input")


def gradients_of(case: NormCase) -> list[CaseTensor]:
    """What a backward returns for a case, dx first."""
    return tensors_of(case, "gradient")


def names_of(*kinds: TensorKind) -> list[str]:
    """The names of all tensors of these kinds, whichever cases have them."""
    return [tensor.name for tensor in TABLE if tensor.kind in kinds]


def headings(gradients: Iterable[str]) -> dict[str, str]:
    """The short heading of each of these gradients, in the table's order; one that is not in the table keeps its name.

    For a report, which reads the names of gradients in a results file.
    """
    short = {tensor.name: tensor.heading or tensor.name for tensor in TABLE if tensor.kind == "gradient"}
    names = dict.fromkeys(gradients)
    return {name: short[name] for name in short if name in names} | {name: name for name in names if name not in short}
