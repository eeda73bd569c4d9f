"""Why an extension of NVIDIA's apex cannot be used."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from .importing import extension_failure


def missing_extension(extension: str, option: str) -> str | None:
    """Why an extension that apex is built with by `option` is missing; None where it is there, or no apex is."""
    if find_spec(extension):
        return extension_failure(extension)
    apex = find_spec("apex")
    if apex is None:
        return None
    if any(Path(folder, "normalization").is_dir() for folder in apex.submodule_search_locations or ()):
        return f"the installed apex was built without {extension}; rebuild it with {option}"
    return "the installed apex is not NVIDIA's: PyPI's apex is another project; build https://github.com/NVIDIA/apex"
