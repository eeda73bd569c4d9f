"""How the inputs of a case are drawn, and the statistics of its rows.

Importable without torch; only what makes tensors imports it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.cases.case import NormCase, torch_dtype
from harness.cases.input_kinds import INPUT_KINDS, Drawn
from harness.cases.inputs import Inputs
from harness.cases.tensors import CaseTensor, inputs_of, tensors_of

if TYPE_CHECKING:
    import torch


def case_seed(case: NormCase, seed: int, salt: str = "") -> int:
    """A seed for this case alone, so that its inputs do not depend on which cases ran before it."""
    digest = hashlib.sha256(f"{seed}/{case.key}/{salt}".encode()).digest()
    return int.from_bytes(digest[:7], "little")


def make_inputs(case: NormCase, seed: int) -> Inputs:
    """Random inputs of a case, made on its device; the same for the same case, seed, torch version and kind of device.

    Each input is normal with the centre and the spread of its line in the table of tensors, or a mask. None is all
    zeros, which draws less power and runs faster. Then the case's kind of inputs changes them, and each is placed
    between guards.
    """
    import torch

    from harness.cases.guards import place

    kind = INPUT_KINDS[case.inputs]
    generator = torch.Generator(case.device).manual_seed(case_seed(case, seed))

    def draw(tensor: CaseTensor) -> torch.Tensor:
        shape, dtype = tensor.shape(case), torch_dtype(tensor.dtype_in(case))
        if tensor.dtype == "uint8":
            return (torch.rand(shape, device=case.device, generator=generator) >= case.dropout_p).to(dtype)
        noise = torch.randn(shape, dtype=dtype, device=case.device, generator=generator)
        return noise.mul_(tensor.spread).add_(tensor.centre(case))

    drawn = {tensor.name: draw(tensor) for tensor in inputs_of(case)}
    kind.change(Drawn(drawn, lambda: _xhat(drawn, case), case.dtype == "fp16"))
    saved = _saved_statistics(drawn, case)
    placed = {name: place(t, kind.layout, name, case.heads, case.projection) for name, t in (drawn | saved).items()}
    return Inputs.of(placed, case=case, eps=case.eps)


def statistics(x: torch.Tensor, case: NormCase) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Mean (None for RMS) and rstd of each row of what is normalised `(rows, cols)`, in fp64 `(rows)`."""
    x64 = x.double()
    if case.norm == "rms":
        return None, (x64.square().mean(1) + case.eps).rsqrt()
    mean = x64.mean(1)
    return mean, ((x64 - mean[:, None]).square().mean(1) + case.eps).rsqrt()


def row_chunks(case: NormCase, elements: int = 1 << 25) -> list[slice]:
    """Rows in pieces of at most `elements` elements, so that fp64 maths of a huge case fits beside it."""
    step = max(1, elements // case.cols)
    return [slice(start, min(start + step, case.rows)) for start in range(0, case.rows, step)]


def _xhat(drawn: Mapping[str, torch.Tensor], case: NormCase) -> torch.Tensor:
    x = _normalised(drawn, case, slice(None))
    mean, rstd = statistics(x, case)
    return (x if mean is None else x - mean[:, None]) * rstd[:, None]


def _normalised(drawn: Mapping[str, torch.Tensor], case: NormCase, rows: slice) -> torch.Tensor:
    """What the norm of a case normalises, on some rows: x, or x * silu(z) in fp64."""
    import torch

    x = drawn["x"][rows]
    return x.double() * torch.nn.functional.silu(drawn["z"][rows].double()) if case.gate_first else x


def _saved_statistics(drawn: Mapping[str, torch.Tensor], case: NormCase) -> dict[str, torch.Tensor]:
    """Mean and rstd as an adapter without a forward of its own gets them: what torch's own forward saves."""
    import torch

    saved = {
        tensor.name: torch.empty(*tensor.shape(case), dtype=torch_dtype(tensor.dtype_in(case)), device=case.device)
        for tensor in tensors_of(case, "statistic")
    }
    for rows in row_chunks(case):
        for name, statistic in zip(saved, _torch_statistics(_normalised(drawn, case, rows), case), strict=True):
            saved[name][rows] = statistic
    return saved


def _torch_statistics(x: torch.Tensor, case: NormCase) -> list[torch.Tensor]:
    """Mean (not for RMS) and rstd `(rows)` fp32 of x `(rows, cols)`, by torch's forward.

    On a CPU from x in fp32: of a 2-byte x that forward keeps its statistics in low precision. So is a product in fp64.
    """
    import torch

    if case.device == "cpu" or x.dtype == torch.float64:
        x = x.float()
    if case.norm == "layer":
        return [each.view(-1) for each in torch.native_layer_norm(x, (case.cols,), None, None, case.eps)[1:]]
    if x.is_cuda and hasattr(torch.ops.aten, "_fused_rms_norm"):  # torch 2.9
        return [torch.ops.aten._fused_rms_norm(x, [case.cols], None, case.eps)[1].view(-1)]
    return [torch.rsqrt(x.float().square().mean(1) + case.eps)]
