"""Fast-LLM's Triton LayerNorm and RMSNorm backward, called directly: it keeps y instead of x."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.cases import ITEM_BYTES, Grads, Inputs, NormCase, contiguous_rows

from ..libraries.installed import import_failure

name = "fast-llm"
version = 0
requires = ("fast_llm", "triton")
install = "with Python 3.12 pip install git+https://github.com/ServiceNow/Fast-LLM, or put a checkout on PYTHONPATH"
compiles_ahead = True

MODULE = "fast_llm.functional.triton.normalization"
WIDEST_BYTES = 64 * 1024  # of a row: TritonConfig.MAX_BLOCK_SIZE_BYTES


def missing() -> str | None:
    return import_failure("fast_llm", MODULE)


def unsupported(case: NormCase) -> str | None:
    if case.device == "cpu":
        return "Triton kernels need a GPU"
    if case.norm == "layer" and not case.bias:
        return "without a bias Fast-LLM's norm is an RMSNorm"
    if case.rows == 0:
        return "Fast-LLM launches a program a row: none is an invalid launch"
    if case.cols * ITEM_BYTES[case.dtype] > WIDEST_BYTES:
        return f"Fast-LLM's Triton norms take rows of at most {WIDEST_BYTES} bytes"
    return None


def saves(_case: NormCase) -> str:
    return "y in place of x"


def notes(case: NormCase) -> list[str]:
    if not case.weight:
        return []
    traps = ["recovers xhat from y by dividing by the weight, whose magnitude it first raises to eps at least"]
    if case.dtype != "fp32":
        traps.append("keeps the partial sums of dweight and dbias in dy's dtype")
    return traps


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    ops: Any = import_module(MODULE)
    given = (inputs.weight, inputs.bias)
    weight, bias = (None if parameter is None else parameter.detach().requires_grad_() for parameter in given)
    parameters: list[Any] = [parameter for parameter in (weight, bias) if parameter is not None]
    _, context = ops.triton_normalization_forward(
        contiguous_rows(inputs.x), weight, bias, inputs.eps, True, inputs.case.zero_centred
    )
    saved = tuple(context)

    def backward() -> Grads:
        for parameter in parameters:  # written to and not added to, as by the first micro-batch of a step
            parameter.grad_buffer, parameter.param_grad_is_zero = parameter.new_empty(parameter.shape), True
        dx = ops.triton_normalization_backward(contiguous_rows(inputs.dy), list(saved))  # it clears the list
        dweight, dbias, *_ = [*(parameter.grad_buffer for parameter in parameters), None, None]
        return Grads(dx.view(inputs.x.shape), dweight, dbias)

    backward()
    return backward
