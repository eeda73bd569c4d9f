"""How the inputs of a case are drawn, and the statistics of its rows.

Importable without torch; only what makes tensors imports it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from harness.cases.case import NormCase, torch_dtype
from harness.cases.input_kinds import INPUT_KINDS, Drawn
from harness.cases.inputs import Inputs
from harness.cases.tensors import CaseTensor, inputs_of, statistics_of

if TYPE_CHECKING:
    import torch


def case_seed(case: NormCase, seed: int, salt: str = "") -> int:
    """A seed for this case alone, so that its inputs do not depend on which cases ran before it."""
    digest = hashlib.sha256(f"{seed}/{case.key}/{salt}".encode()).digest()
    return int.from_bytes(digest[:7], "little")


def make_inputs(case: NormCase, seed: int) -> Inputs:
    """Random inputs of a case, made on its device; the same for the same case, seed, torch version and kind of device.

    Each input is normal with the centre and the spread of its line in the table of tensors. None is all zeros, which
    draws less power and runs faster. Then the case's kind of inputs changes them, and each is placed between guards.
    """
    import torch

    from harness.cases.guards import place

    kind = INPUT_KINDS[case.inputs]
    generator = torch.Generator(case.device).manual_seed(case_seed(case, seed))

    def draw(tensor: CaseTensor) -> torch.Tensor:
        dtype = torch_dtype(tensor.dtype_in(case))
        noise = torch.randn(tensor.shape(case), dtype=dtype, device=case.device, generator=generator)
        return noise.mul_(tensor.spread).add_(tensor.centre(case))

    drawn = {tensor.name: draw(tensor) for tensor in inputs_of(case)}
    x = drawn["x"]
    kind.change(
        Drawn(x, drawn["dy"], drawn.get("weight"), drawn.get("bias"), lambda: _xhat(x, case), case.dtype == "fp16")
    )
    placed = {name: place(t, kind.layout, name) for name, t in (drawn | _rounded_statistics(x, case)).items()}
    plain: dict[str, Any] = {name: placed.pop(name, None) for name in ("x", "weight", "bias", "dy", "mean", "rstd")}
    return Inputs(case=case, eps=case.eps, **plain, extra=placed)


def statistics(x: torch.Tensor, case: NormCase) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Mean (None for RMS) and rstd of each row of x `(rows, cols)`, in fp64 `(rows)`."""
    x64 = x.double()
    if case.norm == "rms":
        return None, (x64.square().mean(1) + case.eps).rsqrt()
    mean = x64.mean(1)
    return mean, ((x64 - mean[:, None]).square().mean(1) + case.eps).rsqrt()


def row_chunks(case: NormCase, elements: int = 1 << 25) -> list[slice]:
    """Rows in pieces of at most `elements` elements, so that fp64 maths of a huge case fits beside it."""
    step = max(1, elements // case.cols)
    return [slice(start, min(start + step, case.rows)) for start in range(0, case.rows, step)]


def _xhat(x: torch.Tensor, case: NormCase) -> torch.Tensor:
    mean, rstd = statistics(x, case)
    return (x if mean is None else x - mean[:, None]) * rstd[:, None]


def _rounded_statistics(x: torch.Tensor, case: NormCase) -> dict[str, torch.Tensor]:
    """Mean and rstd as an adapter gets them."""
    import torch

    saved = {
        tensor.name: torch.empty(*tensor.shape(case), dtype=torch_dtype(tensor.dtype_in(case)), device=case.device)
        for tensor in statistics_of(case)
    }
    for rows in row_chunks(case):
        mean, rstd = statistics(x[rows], case)
        for name, exact in (("mean", mean), ("rstd", rstd)):
            if exact is not None:
                saved[name][rows] = exact.float()
    return saved
