"""What Triton's autotuner chose."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def best_configs(module: ModuleType, named: str) -> str:
    """The configuration that each tuned kernel of a module last ran with, of those with `named` in their name."""
    chosen = {name: _best(kernel) for name, kernel in vars(module).items() if named in name}
    return "; ".join(f"{name}: {config}" for name, config in chosen.items() if config is not None)


def _best(kernel: Any) -> object:
    """That of a kernel, or of what decorators have wrapped."""
    while kernel is not None:
        if (best := getattr(kernel, "best_config", None)) is not None:
            return best
        kernel = getattr(kernel, "fn", None)
    return None
