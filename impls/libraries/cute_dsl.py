"""NVIDIA's CuTe DSL, whose compiler for the CUDA that is here is a package of its own."""

from __future__ import annotations

from importlib import import_module

INSTALL = "pip install 'nvidia-cutlass-dsl[cu13]' (or [cu12], by the CUDA of torch)"


def missing() -> str | None:
    """Say why there is no CuTe DSL here that can compile, or None."""
    try:
        import_module("cutlass.cute")
    except ModuleNotFoundError as error:
        if error.name == "cutlass":
            return f"not installed: cutlass; {INSTALL}"
        return _unusable(error)
    except Exception as error:  # it looks for its compiler, and loads it, as it is imported
        return _unusable(error)
    return None


def _unusable(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"the installed CuTe DSL cannot be imported ({type(error).__name__}: {text[:200]}); {INSTALL}"
