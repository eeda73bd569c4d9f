"""A few modules of a package, imported without the rest of it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any


class _Absent(ModuleType):
    """A module of which every name is an empty class, and what is given."""

    def __getattr__(self, item: str) -> Any:
        if item.startswith("__"):
            raise AttributeError(item)
        return type(item, (), {})


class _Finder(MetaPathFinder, Loader):
    """Finds the wanted modules in their folder, and stands in for whatever else the packages have."""

    def __init__(self, folder: Path, package: str, wanted: Collection[str], given: Mapping[str, Any]) -> None:
        self.folder, self.package, self.wanted, self.given = folder, package, wanted, given
        self.tops = package.partition(".")[0]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self.stands_for(fullname):
            return None
        parent, _, last = fullname.rpartition(".")
        if parent == self.package and last in self.wanted:
            return spec_from_file_location(fullname, self.folder / f"{last}.py")
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _Absent(spec.name)
        vars(module).update(self.given)
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass

    def stands_for(self, fullname: str) -> bool:
        """Whether a module belongs to the package, or to a library that is built with it."""
        return fullname.partition(".")[0].startswith(self.tops)


@contextmanager
def without_the_rest(folder: Path, package: str, wanted: Collection[str], given: Mapping[str, Any]) -> Generator[None]:
    """While this lasts, `package` holds the wanted modules of a folder, and all others are empty but for `given`."""
    finder = _Finder(folder, package, wanted, given)
    before = {module: sys.modules.pop(module) for module in list(sys.modules) if finder.stands_for(module)}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for module in [module for module in sys.modules if finder.stands_for(module)]:
            del sys.modules[module]
        sys.modules.update(before)
