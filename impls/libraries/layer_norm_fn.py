"""The backward of `layer_norm_fn`, the function of flash-attention's Triton norms, of which Mamba has a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.cases import Grads, Inputs

from .autotuner import tuned
from .recorded import PLAIN, behind_residual, recorded


def backward_of(ops: Any, inputs: Inputs, **options: Any) -> Callable[[], Grads]:
    """The tuned backward of a norm, which may have a residual and a parallel second norm; `ops` is the module.

    Two branches of a residual without dropout have one gradient: that is the call of one branch.
    """
    options |= {"eps": inputs.eps, "is_rms_norm": inputs.case.norm == "rms"}

    def norm(x: Any, weight: Any, bias: Any, **second: Any) -> Any:
        return ops.layer_norm_fn(x, weight, bias, **second, **options)

    def add(branch: Any, residual: Any, weight: Any, bias: Any, **second: Any) -> Any:
        return ops.layer_norm_fn(branch, weight, bias, residual, **second, prenorm=True, **options)

    forward = behind_residual(add) if "residual" in inputs.case.features else norm
    backward, _ = recorded(inputs, forward, (*PLAIN, None, None, "dweight1", "dbias1"))
    return tuned(backward, ops, "bwd")
