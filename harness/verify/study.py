"""Figures that are reported and not judged: the error on the same numbers in fp32, and bits in another batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from harness.cases import Grads, Inputs
from harness.cases.adapter import Implementation
from harness.cases.tensors import OUTPUT_GRADIENTS, gradients_of, tensors_of
from harness.records.reasons import Reason
from harness.verify import precision
from harness.verify.determinism import same_bits
from harness.verify.reference import as_rows

APPENDED_ROWS = 64
SAME, OTHER = Reason("same_bits"), Reason("different_bits")


def fp32_errors(implementation: Implementation, inputs: Inputs) -> dict[str, float]:
    """The relative rms error of each gradient on the same values in fp32; none where they are fp32 already."""
    if inputs.case.dtype == "fp32":
        return {}
    case = replace(inputs.case, dtype="fp32", weight_dtype="fp32")
    if implementation.unsupported(case):
        return {}
    numbers = {name: tensor for name, tensor in inputs.tensors().items() if tensor.is_floating_point()}
    wide = replace(inputs, case=case).with_tensors({name: tensor.float() for name, tensor in numbers.items()})
    grads = _run(implementation, wide)
    if precision.malformed(wide, grads):
        return {}
    return {name: check.relative_rms for name, check in precision.check(wide, grads).items()}


def invariance(implementation: Implementation, inputs: Inputs, first: Grads) -> dict[str, Reason]:
    """What becomes of a row's dx when half of the batch is gone, and of dweight when rows of zero dy are added."""
    case = inputs.case
    token = case.heads or 1  # rows that stay together
    half, more = case.rows // 2 // token * token, case.rows + -(-APPENDED_ROWS // token) * token
    expected = first.tensors()
    of_rows, of_parameters = (
        {gradient.name: expected[gradient.name] for gradient in gradients_of(case) if gradient.extent == extent}
        for extent in ("activation", "per column")
    )

    def same_rows(grads: Grads) -> bool:
        tensors = grads.tensors()
        return all(same_bits(as_rows(tensor)[:half], as_rows(tensors[name])) for name, tensor in of_rows.items())

    def same_sums(grads: Grads) -> bool:
        return all(same_bits(tensor, grads.tensors()[name]) for name, tensor in of_parameters.items())

    outcomes = {"dx of half the batch": _outcome(implementation, _rows(inputs, half), same_rows)}
    if of_parameters:
        outcomes["dweight with zero rows appended"] = _outcome(implementation, _rows(inputs, more), same_sums)
    return outcomes


def _outcome(implementation: Implementation, inputs: Inputs, same: Callable[[Grads], bool]) -> Reason:
    if reason := implementation.unsupported(inputs.case):
        return Reason("not_run", parts=[Reason("unsupported", {"text": reason})])
    try:
        return SAME if same(_run(implementation, inputs)) else OTHER
    except Exception as error:
        return Reason("not_run", parts=[Reason("error", {"type": type(error).__name__})])


def _rows(inputs: Inputs, rows: int) -> Inputs:
    """The first rows of a case, or all of them and more, whose gradients of outputs are zero."""

    def cut(tensor: torch.Tensor, zero: bool) -> torch.Tensor:
        each = rows // inputs.case.heads if inputs.case.heads and tensor.dim() > 1 else rows  # tokens, or rows
        more = tensor[: max(0, each - len(tensor))]
        return torch.cat([tensor[:each], torch.zeros_like(more) if zero else more])

    tensors = inputs.tensors()
    cut_tensors = {
        tensor.name: cut(tensors[tensor.name], zero=tensor.name in OUTPUT_GRADIENTS)
        for tensor in tensors_of(inputs.case, "input", "statistic")
        if tensor.extent != "per column"
    }
    return replace(inputs, case=replace(inputs.case, rows=rows)).with_tensors(cut_tensors)


def _run(implementation: Implementation, inputs: Inputs) -> Grads:
    """One call, on gradients of outputs of its own, which it may overwrite."""
    tensors = inputs.tensors()
    copies = {name: tensors[name].clone() for name in OUTPUT_GRADIENTS if name in tensors}
    return implementation.prepare(inputs.with_tensors(copies))()
