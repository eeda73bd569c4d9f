"""An implementation as the harness calls it: an adapter module, or one of the variants that it offers.

docs/add-an-implementation.md tells the whole contract.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Container
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from harness.cases.case import NormCase
from harness.cases.inputs import Grads, Inputs


@dataclass(frozen=True)
class Implementation:
    """One implementation that can be asked for by name: an adapter module, or one of the variants that it offers.

    The methods answer for this variant; each falls back to the plain answer where the adapter has no such function.
    """

    name: str
    family: str
    source: str
    module: ModuleType
    arguments: tuple[Any, ...] = ()  # the variant's value, handed to the adapter's functions as a second argument

    @property
    def via(self) -> Literal["kernel", "autograd"]:
        return getattr(self.module, "via", "kernel")

    @property
    def in_place(self) -> bool:
        return getattr(self.module, "in_place", False)

    @property
    def compiles_ahead(self) -> bool:
        return self._declared("compiles_ahead")

    @property
    def on_request(self) -> bool:
        return self._declared("on_request")

    @property
    def summary(self) -> str:
        return (self.module.__doc__ or "").strip().partition("\n")[0]

    def missing(self) -> str | None:
        """Say which library is not installed here, or why the one that is cannot be used; None if all is there."""
        absent = [module for module in self.module.requires if not _importable(module)]
        try:
            explained = self.module.missing() if hasattr(self.module, "missing") else None
        except Exception as error:  # a check that fails must not take the other implementations with it
            explained = f"cannot be checked: {type(error).__name__}: {error}"
        return explained or (f"not installed: {', '.join(absent)}" if absent else None)

    def unsupported(self, case: NormCase) -> str | None:
        """Say why this case cannot run, or None."""
        return self.module.unsupported(case, *self.arguments)

    def untimed(self, case: NormCase) -> str | None:
        """Say why this case must not be timed though it can be verified, or None."""
        return self._optional("untimed", case) or None

    def notes(self, case: NormCase) -> list[str]:
        """What a reader of this row should know: traps absorbed, detours taken."""
        return list(self._optional("notes", case) or ())

    def prepare(self, inputs: Inputs) -> Callable[[], Grads]:
        """Do all that is not the backward; return the backward."""
        return self.module.prepare(inputs, *self.arguments)

    def _declared(self, what: str) -> bool:
        """A declaration that is true of the whole adapter, or of the variants that it names."""
        declared: bool | Container[str] = getattr(self.module, what, False)
        return declared if isinstance(declared, bool) else self.name in declared

    def _optional(self, function: str, case: NormCase) -> Any:
        answer = getattr(self.module, function, None)
        return answer(case, *self.arguments) if answer else None


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
