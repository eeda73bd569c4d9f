"""What a backward is given and what it returns, and how its inputs are drawn.

Importable without torch; only what makes tensors imports it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.cases.case import NormCase, torch_dtype
from harness.cases.input_kinds import KINDS, Drawn

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Inputs:
    """What a backward is given: tensors on the case's device.

    x, dy `(rows, cols)` contiguous in the case's dtype, but where the case's kind of inputs has another layout; weight,
    bias `(cols)` in its weight dtype, or None; mean, rstd fp32 `(rows)`, computed once in fp64 from x, for an adapter
    that has no forward of its own (mean is None for RMS).
    """

    case: NormCase
    x: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    dy: torch.Tensor
    mean: torch.Tensor | None
    rstd: torch.Tensor
    eps: float


@dataclass(frozen=True)
class Grads:
    """What a backward gives: dx `(rows, cols)`; dweight, dbias `(cols)`, None where the case has no such parameter."""

    dx: torch.Tensor
    dweight: torch.Tensor | None
    dbias: torch.Tensor | None = None


def contiguous_rows(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as most libraries' autograd functions hand it to their kernels: `(rows, cols)`, contiguous."""
    return tensor.reshape(-1, tensor.shape[-1]).contiguous()


def case_seed(case: NormCase, seed: int, salt: str = "") -> int:
    """A seed for this case alone, so that its inputs do not depend on which cases ran before it."""
    digest = hashlib.sha256(f"{seed}/{case.key}/{salt}".encode()).digest()
    return int.from_bytes(digest[:7], "little")


def statistics(x: torch.Tensor, case: NormCase) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Mean (None for RMS) and rstd of each row of x `(rows, cols)`, in fp64 `(rows)`."""
    x64 = x.double()
    if case.norm == "rms":
        return None, (x64.square().mean(1) + case.eps).rsqrt()
    mean = x64.mean(1)
    return mean, ((x64 - mean[:, None]).square().mean(1) + case.eps).rsqrt()


def make_inputs(case: NormCase, seed: int) -> Inputs:
    """Random inputs of a case, made on its device; the same for the same case, seed, torch version and kind of device.

    x ~ N(0.25, 1), so that a LayerNorm that forgets the mean is seen; dy ~ N(0, 1); weight ~ N(1, 0.1), N(0, 0.1) where
    it is zero-centred, and bias ~ N(0, 0.1), as in a trained model: a weight near 0 would condemn every backward that
    keeps y and divides by the weight. Never zeros: they draw less power and run faster. Then changed as the case's kind
    of inputs says, and each placed between guards.
    """
    import torch

    from harness.cases.guards import place

    kind = KINDS[case.inputs]
    generator = torch.Generator(case.device).manual_seed(case_seed(case, seed))
    weight_dtype = torch_dtype(case.weight_dtype)

    def normal(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype, device=case.device, generator=generator)

    shape = (case.rows, case.cols)
    x = normal(shape, torch_dtype(case.dtype)).add_(0.25)
    dy = normal(shape, torch_dtype(case.dtype))
    weight = bias = None
    if case.weight:
        weight = normal((case.cols,), weight_dtype).mul_(0.1).add_(0.0 if case.zero_centred else 1.0)
    if case.bias:
        bias = normal((case.cols,), weight_dtype).mul_(0.1)
    kind.change(Drawn(x, dy, weight, bias, lambda: _xhat(x, case), narrow=case.dtype == "fp16"))
    mean, rstd = _rounded_statistics(x, case)
    tensors = {"x": x, "weight": weight, "bias": bias, "dy": dy, "mean": mean, "rstd": rstd}
    placed: Any = {
        name: tensor if tensor is None else place(tensor, kind.layout, name) for name, tensor in tensors.items()
    }
    return Inputs(case=case, eps=case.eps, **placed)


def _xhat(x: torch.Tensor, case: NormCase) -> torch.Tensor:
    mean, rstd = statistics(x, case)
    return (x if mean is None else x - mean[:, None]) * rstd[:, None]


def _rounded_statistics(x: torch.Tensor, case: NormCase) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Mean and rstd as an adapter gets them."""
    import torch

    mean = torch.empty(case.rows, dtype=torch.float32, device=case.device) if case.norm == "layer" else None
    rstd = torch.empty(case.rows, dtype=torch.float32, device=case.device)
    for rows in row_chunks(case):
        mean64, rstd64 = statistics(x[rows], case)
        rstd[rows] = rstd64.float()
        if mean is not None and mean64 is not None:
            mean[rows] = mean64.float()
    return mean, rstd


def row_chunks(case: NormCase, elements: int = 1 << 25) -> list[slice]:
    """Rows in pieces of at most `elements` elements, so that fp64 maths of a huge case fits beside it."""
    step = max(1, elements // case.cols)
    return [slice(start, min(start + step, case.rows)) for start in range(0, case.rows, step)]
