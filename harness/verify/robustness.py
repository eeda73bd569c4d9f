"""What a careless or cheating backward may not get away with."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.cases import Grads, Inputs
from harness.verify.determinism import same_bits

# Scaling dy by a power of two scales every gradient exactly: an answer to the new dy needs no second reference.
NEW_DY_SCALE = -0.5
NEW_DY_TOLERANCE = 1e-2  # a stale answer is off by 3; an honest one by what underflows in half of an fp16


@dataclass(frozen=True)
class Pristine:
    """Copies of the inputs as they were made, to compare with and to restore dy from."""

    x: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    dy: torch.Tensor

    @classmethod
    def of(cls, inputs: Inputs) -> Pristine:
        """Copy the inputs of a case."""
        copies = (None if t is None else t.clone() for t in (inputs.x, inputs.weight, inputs.bias, inputs.dy))
        return cls(*copies)  # pyright: ignore[reportArgumentType]

    def changed(self, inputs: Inputs, in_place: bool) -> list[str]:
        """Names of the inputs that are no longer what they were; dy may change where that is declared."""
        names = ("x", "weight", "bias") if in_place else ("x", "weight", "bias", "dy")
        pairs = {name: (getattr(self, name), getattr(inputs, name)) for name in names}
        return [name for name, (was, now) in pairs.items() if was is not None and not same_bits(was, now)]

    def restore(self, inputs: Inputs) -> None:
        """Put every input back, unseen by autograd, which would refuse a backward whose inputs were written to."""
        for name in ("x", "weight", "bias", "dy"):
            if (was := getattr(self, name)) is not None:
                getattr(inputs, name).data.copy_(was)


def poison(inputs: Inputs, blocks: int = 3) -> None:
    """Fill the memory that outputs and scratch will reuse with NaN, so that what a backward leaves unwritten shows.

    Works through the allocator's cache: blocks of the sizes of the gradients are taken, filled and given back.
    """
    case, device = inputs.case, inputs.x.device
    taken = [torch.empty_like(inputs.x) for _ in range(blocks)]
    for dtype in (inputs.dy.dtype if inputs.weight is None else inputs.weight.dtype, torch.float32):
        taken += [torch.empty(case.cols, dtype=dtype, device=device) for _ in range(2 * blocks)]
    for tensor in taken:
        tensor.fill_(torch.nan)


def stale(first: Grads, second: Grads) -> list[str]:
    """Names of the gradients that did not follow dy when its contents, at the same address, were scaled."""
    return [name for name in ("dx", "dweight", "dbias") if not _follows(getattr(first, name), getattr(second, name))]


def _follows(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    if first is None or second is None:
        return True
    wanted = first.double() * NEW_DY_SCALE
    error = (second.double() - wanted).square().sum()
    return bool(error <= NEW_DY_TOLERANCE**2 * wanted.square().sum())
