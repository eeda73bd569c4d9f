"""The properties that distinguish cases, in words for a reader who chooses among them."""

from __future__ import annotations

from harness.cases import NormCase
from harness.cases.variants import PLAIN


def variant_in_words(case: NormCase) -> str:
    """The variant and the parameters of a case, such as `plain` or `residual, no weight`."""
    words = ["+".join(case.features) or PLAIN]
    words += [] if case.weight else ["no weight"]
    words += ["no bias"] if case.norm == "layer" and case.weight and not case.bias else []
    words += ["zero-centred"] if case.zero_centred else []
    words += [f"eps {case.eps!r}"] if case.eps != 1e-5 else []
    return ", ".join(words)


def dtype_in_words(case: NormCase) -> str:
    """The dtype of x and dy, and that of the weight where it is another."""
    other = case.weight and case.weight_dtype != case.dtype
    return f"{case.dtype}, weight {case.weight_dtype}" if other else case.dtype


def shape_in_words(case: NormCase) -> str:
    """Rows and columns, and for a slice of a projection its heads and the projection's width."""
    heads = f", {case.heads} heads of {case.projection}" if case.heads else ""
    return f"{case.rows} x {case.cols}{heads}"
