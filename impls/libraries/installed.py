"""Why a library that is installed cannot be used here."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

INSTALL_CUTE_DSL = "pip install 'nvidia-cutlass-dsl[cu13]' (or [cu12], by the CUDA of torch)"


def import_failure(package: str, module: str) -> str | None:
    """Why a module of an installed package cannot be imported; None where it can, or the package is not installed."""
    if find_spec(package) is None:
        return None
    try:
        import_module(module)
    except Exception as error:
        return f"{module} cannot be imported: {type(error).__name__}: {error}"
    return None


def extension_failure(extension: str) -> str | None:
    """Why an installed extension of torch cannot be loaded; None where it can, or is not installed."""
    if find_spec(extension) is None:
        return None
    import_module("torch")  # loads the libraries that the extension links to
    failure = import_failure(extension, extension)
    return f"{failure}; build it again with the torch that is installed" if failure else None


def apex_failure(extension: str, option: str) -> str | None:
    """Why an extension that apex is built with by `option` is missing; None where it is there, or no apex is."""
    if find_spec(extension):
        return extension_failure(extension)
    apex = find_spec("apex")
    if apex is None:
        return None
    if any(Path(folder, "normalization").is_dir() for folder in apex.submodule_search_locations or ()):
        return f"the installed apex was built without {extension}; rebuild it with {option}"
    return "the installed apex is not NVIDIA's: PyPI's apex is another project; build https://github.com/NVIDIA/apex"


def cute_dsl_failure() -> str | None:
    """Why there is no CuTe DSL here that can compile, or None; its compiler for this CUDA is a package of its own."""
    try:
        import_module("cutlass.cute")
    except Exception as error:  # it looks for its compiler, and loads it, as it is imported
        if isinstance(error, ModuleNotFoundError) and error.name == "cutlass":
            return f"not installed: cutlass; {INSTALL_CUTE_DSL}"
        text = " ".join(str(error).split())
        why = f"{type(error).__name__}: {text[:200]}"
        return f"the installed CuTe DSL cannot be imported ({why}); {INSTALL_CUTE_DSL}"
    return None
