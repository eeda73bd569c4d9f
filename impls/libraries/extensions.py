"""Why an extension of torch that is built from source is missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from .importing import import_failure


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
