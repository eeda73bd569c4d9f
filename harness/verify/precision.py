"""How far gradients are from fp64, in units of the unavoidable.

rho = rms(out - ref) / rms(unavoidable), where the unavoidable error of an element is that of rounding the reference
once to the output's dtype, or the resolution of fp32 arithmetic over the terms that make it up, whichever is larger in
rms. 1.00 is what a perfect computation with one final rounding reaches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from harness.cases import Grads, Inputs, NormCase, torch_dtype
from harness.cases.tensors import CaseTensor, gradients_of, inputs_of
from harness.records.reasons import Reason
from harness.records.schema import ErrorClass, TensorCheck
from harness.verify.error_classes import ErrorSums, classify
from harness.verify.reference import Exact, Piece, as_rows, pieces

FLUSHES: ErrorClass = "flushes subnormals"


def malformed(inputs: Inputs, grads: object) -> Reason | None:
    """Say what is missing, misshapen or of the wrong type in the gradients, or None.

    A wider dtype than asked for (fp32) is accepted and rounded before it is judged: the same yardstick for all.
    """
    if not isinstance(grads, Grads):
        return Reason("not_grads", {"type": type(grads).__name__})
    faults = (
        _malformed(gradient, inputs, getattr(grads, gradient.name, None)) for gradient in gradients_of(inputs.case)
    )
    return next(filter(None, faults), None)


def to_be_converted(inputs: Inputs, grads: Grads) -> list[Reason]:
    """A note for each gradient of a wider dtype than asked for, or with strides where all inputs are contiguous."""
    expected = {gradient.name: torch_dtype(gradient.dtype_in(inputs.case)) for gradient in gradients_of(inputs.case)}
    contiguous = all(tensor.is_contiguous() for tensor in inputs.tensors().values())
    notes: list[Reason] = []
    for name, dtype in expected.items():
        tensor = grads.tensors()[name]
        if tensor.dtype != dtype:
            notes.append(Reason("wider_dtype", {"tensor": name, "dtype": str(tensor.dtype), "expected": str(dtype)}))
        if contiguous and not tensor.is_contiguous():
            notes.append(Reason("other_strides", {"tensor": name, "strides": str(tensor.stride())}))
    return notes


def _malformed(gradient: CaseTensor, inputs: Inputs, tensor: Any) -> Reason | None:
    name, case = gradient.name, inputs.case
    shape = tuple(inputs.x.shape) if gradient.extent == "activation" else gradient.shape(case)
    dtype = torch_dtype(gradient.dtype_in(case))
    if tensor is None:
        return Reason("no_gradient", {"tensor": name})
    if type(tensor) is not torch.Tensor:
        return Reason("not_a_tensor", {"tensor": name, "type": type(tensor).__name__})
    if tensor.layout != torch.strided or tensor.is_neg():
        layout = "lazily negated" if tensor.is_neg() else str(tensor.layout)
        return Reason("not_dense", {"tensor": name, "layout": layout})
    if tuple(tensor.shape) != shape:
        return Reason("other_shape", {"tensor": name, "shape": str(tuple(tensor.shape)), "expected": str(shape)})
    if tensor.dtype not in (dtype, torch.float32):
        return Reason("other_dtype", {"tensor": name, "dtype": str(tensor.dtype), "expected": str(dtype)})
    elsewhere = tensor.device.type != case.device
    return Reason("other_device", {"tensor": name, "device": str(tensor.device)}) if elsewhere else None


def check(inputs: Inputs, grads: Grads, cells: int = 1, exact: Iterable[Piece] = ()) -> dict[str, TensorCheck]:
    """Compare every gradient of the case in full with the fp64 reference; `inputs.dy` must be the original one.

    `exact` is that reference, where it is known.
    """
    comparison = Comparison(inputs.case)
    comparison.add(inputs, grads, exact)
    return comparison.judge(cells)


class Comparison:
    """The gradients of a case compared with the reference, over as many inputs of the case as are added.

    Where the case has subnormal numbers, they are also compared with references that take these as zero: as a gradient
    is written, and as an input is read as well.
    """

    def __init__(self, case: NormCase) -> None:
        self.case = case
        self.sums = _sums(case)
        self.flushed = [_sums(case), _sums(case)] if case.inputs.startswith("subnormal") else []

    def add(self, inputs: Inputs, grads: Grads, exact: Iterable[Piece] = ()) -> None:
        """Compare the gradients of one set of inputs in full; `exact` is their reference, where it is known."""
        self._add(self.sums, inputs, grads, exact)
        for sums, read in zip(self.flushed, (inputs, _without_subnormals(inputs)), strict=False):
            self._add(sums, read, grads, flushes=True)

    def _add(
        self,
        sums: Mapping[str, ErrorSums],
        inputs: Inputs,
        grads: Grads,
        known: Iterable[Piece] = (),
        *,
        flushes: bool = False,
    ) -> None:
        case, outputs = self.case, grads.tensors()
        gradients = gradients_of(case)
        of_parameters = [gradient.name for gradient in gradients if gradient.extent == "per column"]
        dtypes = {gradient.name: torch_dtype(gradient.dtype_in(case)) for gradient in gradients}
        totals: dict[str, Exact] = {}
        any_spoilt = torch.zeros((), dtype=torch.bool, device=inputs.x.device)
        for piece in known or pieces(inputs):
            for name, dtype in dtypes.items():
                exact = piece.gradients[name]
                if name in of_parameters:
                    totals[name] = totals[name] + exact if name in totals else exact
                else:
                    rows = as_rows(outputs[name])[piece.rows]
                    exact = _as_written(exact, rows, dtype) if flushes else exact
                    sums[name].add(rows, exact, dtype, 1, piece.spoilt[:, None])
            any_spoilt = any_spoilt | piece.spoilt.any()
        for name in of_parameters:
            if name in totals:
                exact = _as_written(totals[name], outputs[name], dtypes[name]) if flushes else totals[name]
                sums[name].add(outputs[name], exact, dtypes[name], case.rows, any_spoilt)
            elif outputs[name].count_nonzero() > 0:  # no rows: the gradient of nothing is zero
                sums[name].error = math.inf

    def judge(self, cells: int) -> dict[str, TensorCheck]:
        """The error of each gradient and its class, by chance over `cells` tensors."""
        checks = {name: sums.judge(cells) for name, sums in self.sums.items()}
        for flushed in self.flushed:
            for name, check in checks.items():
                if check.error_class == "wrong" and flushed[name].judge(cells).error_class != "wrong":
                    checks[name] = check.model_copy(update={"error_class": FLUSHES})
        return checks


def _sums(case: NormCase) -> dict[str, ErrorSums]:
    return {gradient.name: ErrorSums() for gradient in gradients_of(case)}


def _without_subnormals(inputs: Inputs) -> Inputs:
    """The same inputs, with zero in place of each number below the smallest normal one of its dtype."""
    names = {tensor.name for tensor in inputs_of(inputs.case)}
    drawn = {name: tensor for name, tensor in inputs.tensors().items() if name in names and tensor.is_floating_point()}
    return inputs.with_tensors({name: _flushed(tensor, tensor.dtype) for name, tensor in drawn.items()})


def _as_written(exact: Exact, written: torch.Tensor, dtype: torch.dtype) -> Exact:
    """The reference with zero where it is subnormal in the gradient's dtype and zero was written."""
    return Exact(torch.where(written == 0, _flushed(exact.values, dtype), exact.values), exact.terms)


def _flushed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.where(tensor.abs() < torch.finfo(dtype).tiny, torch.zeros_like(tensor), tensor)


def flushing(checks: Mapping[str, TensorCheck]) -> list[Reason]:
    """A note that names the gradients in which subnormal numbers are taken as zero, if there are any."""
    names = [name for name, check in checks.items() if check.error_class == FLUSHES]
    return [Reason("flushes_subnormals", {"tensors": names})] if names else []


def fault(checks: Mapping[str, TensorCheck]) -> Reason | None:
    """Name the gradients that are wrong and how far they are off, by their own error or by their worst row's."""

    def named(name: str, check: TensorCheck) -> Reason:
        if classify(check.rho) == "wrong" or check.worst_row is None:
            return Reason("tensor_off", {"tensor": name, "rho": check.rho})
        return Reason("row_off", {"tensor": name, "rho": check.worst_row})

    wrong = [named(name, check) for name, check in checks.items() if check.error_class == "wrong"]
    return Reason("off", parts=wrong) if wrong else None
