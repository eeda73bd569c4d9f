"""What is reported of an implementation and not judged: the same numbers in fp32, and another batch around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from harness.cases import Grads, Inputs
from harness.cases.adapter import Implementation
from harness.verify import precision
from harness.verify.determinism import same_bits

APPENDED_ROWS = 64
SAME, OTHER = "same bits", "other bits"


def fp32_errors(implementation: Implementation, inputs: Inputs) -> dict[str, float]:
    """The relative rms error of each gradient where the same numbers are held in fp32; none where they are already."""
    if inputs.case.dtype == "fp32":
        return {}
    case = replace(inputs.case, dtype="fp32", weight_dtype="fp32")
    if implementation.unsupported(case):
        return {}
    wide = replace(
        inputs,
        case=case,
        x=inputs.x.float(),
        dy=inputs.dy.float(),
        weight=None if inputs.weight is None else inputs.weight.float(),
        bias=None if inputs.bias is None else inputs.bias.float(),
    )
    grads = _run(implementation, wide)
    if precision.malformed(wide, grads):
        return {}
    return {name: check.relative_rms for name, check in precision.check(wide, grads).items()}


def invariance(implementation: Implementation, inputs: Inputs, first: Grads) -> dict[str, str]:
    """What becomes of a row's dx when half of the batch is gone, and of dweight when rows of zero dy are added."""
    half, more = inputs.case.rows // 2, inputs.case.rows + APPENDED_ROWS

    def compare_dx(grads: Grads) -> bool:
        return same_bits(first.dx[:half], grads.dx)

    def compare_sums(grads: Grads) -> bool:
        pairs = ((first.dweight, grads.dweight), (first.dbias, grads.dbias))
        return all(a is None or (b is not None and same_bits(a, b)) for a, b in pairs)

    found = {"dx of half the batch": _outcome(implementation, _rows(inputs, half), compare_dx)}
    if first.dweight is not None:
        found["dweight with zero rows appended"] = _outcome(implementation, _rows(inputs, more), compare_sums)
    return found


def _outcome(implementation: Implementation, inputs: Inputs, same: Callable[[Grads], bool]) -> str:
    if reason := implementation.unsupported(inputs.case):
        return f"not run: {reason}"
    try:
        return SAME if same(_run(implementation, inputs)) else OTHER
    except Exception as error:
        return f"not run: {type(error).__name__}"


def _rows(inputs: Inputs, rows: int) -> Inputs:
    """The first rows of a case, or all of them and more, whose dy is zero."""

    def cut(tensor: torch.Tensor, zero: bool = False) -> torch.Tensor:
        more = tensor[: max(0, rows - len(tensor))]
        return torch.cat([tensor[:rows], torch.zeros_like(more) if zero else more])

    return replace(
        inputs,
        case=replace(inputs.case, rows=rows),
        x=cut(inputs.x),
        dy=cut(inputs.dy, zero=True),
        mean=None if inputs.mean is None else cut(inputs.mean),
        rstd=cut(inputs.rstd),
    )


def _run(implementation: Implementation, inputs: Inputs) -> Grads:
    """One call, on a dy of its own, which it may overwrite."""
    return implementation.prepare(replace(inputs, dy=inputs.dy.clone()))()
