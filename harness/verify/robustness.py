"""What a careless or cheating backward may not get away with."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.cases import Inputs
from harness.verify.determinism import same_bits

NAMES = ("x", "weight", "bias", "dy", "mean", "rstd")


@dataclass(frozen=True)
class Pristine:
    """Copies of the inputs as they were made, to compare with and to restore dy from."""

    copies: dict[str, torch.Tensor]

    @classmethod
    def of(cls, inputs: Inputs) -> Pristine:
        """Copy the inputs of a case, the statistics among them."""
        return cls({name: t.clone() for name in NAMES if (t := getattr(inputs, name)) is not None})

    @property
    def dy(self) -> torch.Tensor:
        """The dy that was made."""
        return self.copies["dy"]

    def changed(self, inputs: Inputs, in_place: bool) -> list[str]:
        """Names of the inputs that are no longer what they were; dy may change where that is declared."""
        return [
            name
            for name, was in self.copies.items()
            if not (in_place and name == "dy") and not same_bits(was, getattr(inputs, name))
        ]

    def restore(self, inputs: Inputs) -> None:
        """Put every input back, unseen by autograd, which would refuse a backward whose inputs were written to."""
        for name, was in self.copies.items():
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
