"""torch.compile of what is measured: nothing shared between cases, and what its tuning by timing chose."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

Result = TypeVar("Result")

TRIED = "triton_"
AT_DEFAULT = ("num_ctas: 1", "maxnreg: None")


def compile_alone(function: Callable[..., Result], mode: str | None = None) -> Callable[..., Result]:
    """Compile a function of fixed shapes, with a code object of its own.

    The compiler keeps what it compiled by code object, counts recompilations there, and would take what one case's or
    variant's settings made for another's.
    """
    import torch

    own = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    return torch.compile(own, mode=mode, dynamic=False, fullgraph=True)


def tuned_kernels() -> dict[str, str]:
    """The launch configuration that each kernel which Inductor wrote in this process runs with, by the kernel's name.

    A kernel that has not run yet, and may still be tuned, is left out; so are those that Inductor only tried, which it
    gives one name.
    """
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    return {
        f"{module.__name__}.{name}": _described(str(kernel.launchers[0].config))
        for module in PyCodeCache.modules
        for name, kernel in vars(module).items()
        if isinstance(kernel, CachingAutotuner) and len(kernel.launchers) == 1 and name != TRIED
    }


def _described(config: str) -> str:
    """A configuration without what is at its default."""
    return ", ".join(part for part in config.split(", ") if part not in AT_DEFAULT)
