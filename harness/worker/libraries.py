"""The versions of the libraries that the implementations run with; a resumed run must have the same.

An installed package states its version. The version of a package built from source says little, so its commit is added,
or else a hash of the imported files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.cases.adapter import Implementation
from harness.git import GitError, git

ALWAYS = ("torch", "triton", "numpy")
HASHED = (".py", ".so", ".pyd")  # of a package's files
SHOWN = 12  # digits of a hash


def versions() -> dict[str, str]:
    """The versions that all implementations share, by name: Python, torch and the libraries that torch brings."""
    return {"python": sys.version.split()[0]} | installed() | _bundled_with_torch()


def installed() -> dict[str, str]:
    """The versions of the packages that all implementations share; none of them is imported."""
    known: dict[str, str] = {}
    for name in ALWAYS:
        with suppress(metadata.PackageNotFoundError):
            known[name] = metadata.version(name)
    return known


def versions_for(implementation: Implementation) -> dict[str, str]:
    """The versions of what an implementation requires or uses, by name of the distribution, or else of the module.

    An adapter that is not in impls/ is included itself, by the hash of its file.
    """
    installed: dict[str, str] = {}
    for module in (*implementation.module.requires, *getattr(implementation.module, "uses", ())):
        if module.partition(".")[0] not in ALWAYS and (origin := _origin(module)) is not None:
            installed |= version_of(module, origin)
    if Path(implementation.source).suffix == ".py" and not implementation.module.__name__.startswith("impls."):
        installed[Path(implementation.source).name] = _hashed([Path(implementation.source)])
    return installed


def version_of(module: str, origin: Path) -> dict[str, str]:
    """The versions of the distributions that a module imported from `origin` belongs to, or its own."""
    names = next(filter(None, map(_packages().get, _tops(module, origin))), [])
    distributions = {_normalised(name): metadata.distribution(name) for name in sorted(set(names))}
    installed = {name: _of_distribution(item, origin) for name, item in distributions.items() if _holds(item, origin)}
    return installed or {module: _commit(origin.parent) or _hashed(_files(origin))}


def _normalised(name: str) -> str:
    """A distribution's name as package indices write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _tops(module: str, origin: Path) -> list[str]:
    """The names under which a distribution may list a module: its own, or that of the folder that it lies in."""
    roots = [Path(entry).resolve() for entry in sys.path]
    below = [origin.relative_to(root) for root in roots if origin.is_relative_to(root)]
    return [module.partition(".")[0], *(path.parts[0] for path in below)]


def _holds(distribution: metadata.Distribution, origin: Path) -> bool:
    """Whether a file belongs to the installed distribution, and not to a checkout that precedes it on the path."""
    editable = _came_from(distribution).get("dir_info", {}).get("editable", False)
    return bool(editable) or origin.is_relative_to(Path(str(distribution.locate_file(""))).resolve())


def _of_distribution(distribution: metadata.Distribution, origin: Path) -> str:
    """Its version, with the commit or hash of one that was not installed from a package index."""
    came_from = _came_from(distribution)
    if not came_from:
        return distribution.version
    archive: dict[str, Any] = came_from.get("archive_info", {})
    if digest := archive.get("hashes", {}).get("sha256"):  # a wheel's own, which may have been built from anything
        return f"{distribution.version} (sha256:{digest[:SHOWN]})"
    commit = came_from.get("vcs_info", {}).get("commit_id") or _commit(origin.parent)
    return f"{distribution.version} ({commit[:SHOWN] if commit else _hashed(_files(origin))})"


def _came_from(distribution: metadata.Distribution) -> dict[str, Any]:
    return json.loads(distribution.read_text("direct_url.json") or "{}")


def _commit(folder: Path) -> str | None:
    """The commit of the checkout that holds a folder among its files, marked where it has uncommitted changes."""
    try:
        git(folder, "ls-files", "--error-unmatch", ".")
        return git(folder, "describe", "--always", "--dirty", f"--abbrev={SHOWN}", "--exclude=*")
    except GitError:
        return None


def _files(origin: Path) -> list[Path]:
    """The files of a package, or the one file of a module."""
    if origin.name != "__init__.py":
        return [origin]
    return sorted(path for path in origin.parent.rglob("*") if path.suffix in HASHED)


def _hashed(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return f"sha256:{digest.hexdigest()[:SHOWN]}"


def _origin(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is not None and spec.origin is None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve() / "__init__.py"  # a folder that has none
    path = Path(spec.origin).resolve() if spec is not None and spec.origin else None
    return path if path is not None and path.is_file() else None


@lru_cache
def _packages() -> dict[str, list[str]]:
    """The names of the distributions that install each top-level module or folder."""
    return dict(metadata.packages_distributions())


def _bundled_with_torch() -> dict[str, str]:
    import torch

    backend = torch.backends.cudnn.version() if torch.version.cuda else None
    bundled = {"cuda": torch.version.cuda, "rocm": torch.version.hip, "libcudnn": backend}
    return {name: str(version) for name, version in bundled.items() if version}
