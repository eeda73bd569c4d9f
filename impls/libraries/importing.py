"""Whether a library that is installed can be imported here."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec


def import_failure(package: str, module: str) -> str | None:
    """Why a module of an installed package cannot be imported; None where it can, or the package is not installed."""
    if find_spec(package) is None:
        return None
    try:
        import_module(module)
    except Exception as error:
        return f"{module} cannot be imported: {type(error).__name__}: {error}"
    return None
