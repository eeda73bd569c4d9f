"""What a backward is given and what it returns.

Importable without torch, whose tensors are only held here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from harness.cases.case import NormCase
from harness.cases.tensors import TensorKind, names_of

if TYPE_CHECKING:
    import torch

Extra = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True)
class _Tensors:
    """Tensors of a case by name: those of a plain case are fields, others lie in `extra`; each is an attribute."""

    kinds: ClassVar[tuple[TensorKind, ...]]

    def __getattr__(self, name: str) -> torch.Tensor:
        extra: Extra = self.__dict__.get("extra", {})
        if name not in extra:
            raise AttributeError(f"{type(self).__name__} has no {name}; it has {', '.join(self.tensors())}")
        return extra[name]

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors that are here, by name, in the order of the table of tensors."""
        by_name = self.__dict__ | dict(self.__dict__.get("extra", {}))
        return {name: by_name[name] for name in names_of(*self.kinds) if by_name.get(name) is not None}

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor], **others: Any) -> Self:
        """These tensors, by name; `others` are the fields that are none."""
        own = [item.name for item in fields(cls) if item.name in names_of(*cls.kinds)]
        others["extra"] = {name: tensor for name, tensor in tensors.items() if name not in own}
        return cls(**{name: tensors.get(name) for name in own}, **others)

    def with_tensors(self, tensors: Mapping[str, torch.Tensor]) -> Self:
        """The same with these tensors in place of those of their names, or besides them."""
        own = {item.name for item in fields(self)}
        plain = {name: tensor for name, tensor in tensors.items() if name in own}
        extra = {name: tensor for name, tensor in tensors.items() if name not in own}
        return replace(self, **plain, extra={**self.__dict__["extra"], **extra})

    def views(self) -> Self:
        """The same memory under tensors of their own.

        Autograd refuses a backward whose saved tensor was written to; it does not see what is written to another view.
        """
        return self.with_tensors({name: tensor.data for name, tensor in self.tensors().items()})


@dataclass(frozen=True)
class Inputs(_Tensors):
    """What a backward is given: tensors on the case's device.

    x, dy `(rows, cols)` contiguous in the case's dtype, but where the case's kind of inputs has another layout; weight,
    bias `(cols)` in its weight dtype, or None; mean, rstd fp32 `(rows)`, as torch saves them, for an adapter
    that has no forward of its own (mean is None for RMS). What a case has beyond these is an attribute too.
    """

    kinds = ("input", "statistic")
    case: NormCase
    x: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    dy: torch.Tensor
    mean: torch.Tensor | None
    rstd: torch.Tensor
    eps: float
    extra: Extra = field(default_factory=dict[str, "torch.Tensor"])


@dataclass(frozen=True)
class Grads(_Tensors):
    """What a backward gives: dx `(rows, cols)`; dweight, dbias `(cols)`, None where the case has no such parameter.

    Gradients that a plain case does not have go into `extra`, by name.
    """

    kinds = ("gradient",)
    dx: torch.Tensor
    dweight: torch.Tensor | None
    dbias: torch.Tensor | None = None
    extra: Extra = field(default_factory=dict[str, "torch.Tensor"])


@dataclass(frozen=True)
class Chosen:
    """A backward for which a dispatcher, or a search by timing, made a choice; `what` names it in the row's notes."""

    backward: Callable[[], Grads]
    what: str

    def __call__(self) -> Grads:
        return self.backward()


def contiguous_rows(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as most libraries' autograd functions hand it to their kernels: `(rows, cols)`, contiguous."""
    return tensor.reshape(-1, tensor.shape[-1]).contiguous()
