"""What Triton's autotuner chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from harness.cases import Chosen, Grads


def tuned(backward: Callable[[], Grads], module: ModuleType, named: str) -> Callable[[], Grads]:
    """Run a backward, which compiles and tunes it, and say what its kernels were tuned to.

    Its kernels are those of the module with `named` in their name that are tuned; of them this one may run some.
    """
    kernels = {name: tuner for name, kernel in vars(module).items() if named in name for tuner in _tuners(kernel)}
    for tuner in kernels.values():
        tuner.best_config = None  # as it was found for another case
    backward()
    chosen = [f"{name}: {tuner.best_config}" for name, tuner in kernels.items() if tuner.best_config is not None]
    return Chosen(backward, "; ".join(chosen)) if chosen else backward


def _tuners(kernel: Any) -> Iterator[Any]:
    """The tuner of a kernel, itself or below other decorators; one that has not run yet knows no best."""
    while kernel is not None:
        if hasattr(kernel, "configs") or hasattr(kernel, "best_config"):
            yield kernel
        kernel = getattr(kernel, "fn", None)
