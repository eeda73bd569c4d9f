"""Finds implementations: files of impls/ and of its folders of peers, entry points, and files of the command line.

Nothing is registered: a module that is here and has the shape of an adapter (contract.py) is an implementation.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import impls
from harness.cases.adapter import Implementation
from harness.errors import UsageError
from harness.worker.configured import candidates, tuned
from harness.worker.contract import faults, file_fault
from harness.worker.revisions import Side, packages

ENTRY_POINT_GROUP = "normbwd.impls"
PEERS = "_peers"  # what the folders of impls/ that hold adapters end in
SHOWN = (bool, int, float, str, dict)
INSIDE_FUNCTIONS = (
    "; import libraries inside functions, and name them in requires (docs/add-an-implementation.md), and what lies "
    "beside it by `from .name import`"
)


class Sibling(Implementation):
    """A variant of an adapter after its first one; its summary says how it differs from that."""

    @property
    def summary(self) -> str:
        first, value = next(iter(self.module.variants.items()))
        changed = _changed(_variant_word(self.module), self.arguments[0], value)
        difference = ", ".join(f"{name}={value}" for name, value in changed.items() if isinstance(value, SHOWN))
        return f"as {first}, but {difference or 'another of its variants'}"


def discover(
    files: Iterable[Path] = (),
    sides: Iterable[Side] = (),
    tuned_files: Iterable[Path] = (),
    offered: Mapping[str, int] | None = None,
) -> list[Implementation]:
    """All implementations: this project's, then those of entry points, then those of `files` (from --impl).

    Added under their own names are the revisions of an adapter in `sides` (`quack@base`), the configurations of
    `tuned_files` (`quack@tuned`), and so many configurations of each implementation in `offered` (`quack#01`).

    Raises UsageError for a file or entry point that is not an adapter, for a name that is taken, and for a tuned file
    that cannot be used.
    """
    modules = [(_load_entry_point(point), point.value) for point in entry_points(group=ENTRY_POINT_GROUP)]
    named: list[Path] = []
    for path in files:  # one after the other: between them the caller looks at what an import did
        _make_neighbours_importable(named := [*named, path])
        modules.append((_load_file(path), str(path)))
    implementations = [*own(), *(item for module, source in modules for item in _implementations(module, source))]
    for side in sides:
        try:
            module = _load_side(Path(side.file), side.word)
        except UsageError as error:
            what = f"{side.word} ({side.named or 'commit'} {side.commit[:12]})"
            raise UsageError(str(error).replace(f"--impl {side.file}", what)) from error
        implementations += [
            replace(item, name=f"{item.name}@{side.word}") for item in _implementations(module, side.file)
        ]
    by_name = _by_name(implementations)
    more = [item for path in tuned_files for item in tuned(by_name.values(), path)]
    more += [item for name, count in (offered or {}).items() for item in candidates(by_name[name], count)]
    return list(_by_name([*implementations, *more]).values())


def own() -> list[Implementation]:
    """Those of this project, for which no library is imported."""
    return [
        item
        for module in _own_modules()
        for item in _implementations(module, f"{module.__name__.replace('.', '/')}.py")
    ]


def of_file(path: Path) -> list[Implementation]:
    """The implementations of one file alone; one in impls/ is imported by its name there, for its relative imports."""
    below = path.relative_to(Path(impls.__path__[0])) if path.is_relative_to(impls.__path__[0]) else None
    if below:
        module = importlib.import_module(".".join(("impls", *below.with_suffix("").parts)))
    else:
        _make_neighbours_importable([path])
        module = _load_file(path)
    return _implementations(module, str(path))


def _by_name(implementations: Iterable[Implementation]) -> dict[str, Implementation]:
    by_name: dict[str, Implementation] = {}
    for item in implementations:
        if item.name in by_name:
            other = by_name[item.name].source
            raise UsageError(f"{item.source} and {other} both call themselves {item.name!r}; rename one")
        by_name[item.name] = item
    return by_name


def _own_modules() -> list[ModuleType]:
    """The adapters of this project, sorted by name over impls/ and its folders of peers."""
    packages = [info.name for info in pkgutil.iter_modules(impls.__path__) if info.ispkg]
    peers = [importlib.import_module(f"{impls.__name__}.{name}") for name in packages if name.endswith(PEERS)]
    names = [
        f"{package.__name__}.{info.name}"
        for package in (impls, *peers)
        for info in pkgutil.iter_modules(package.__path__)
        if not info.ispkg
    ]
    return [importlib.import_module(name) for name in sorted(names, key=lambda name: name.rpartition(".")[2])]


def _implementations(module: ModuleType, source: str) -> list[Implementation]:
    if problems := faults(module):
        raise UsageError(f"{source}: {'; '.join(problems)}; docs/add-an-implementation.md shows what it needs")
    variants: dict[str, Any] | None = getattr(module, "variants", None)
    family = getattr(module, "library", module.name)
    if variants is None:
        return [Implementation(module.name, family, source, module)]
    (first, value), *others = variants.items()
    siblings = [Sibling(name, family, source, module, (value,)) for name, value in others]
    return [Implementation(first, family, source, module, (value,)), *siblings]


def _variant_word(module: ModuleType) -> str:
    """What an adapter's `prepare` calls the value of a variant."""
    try:
        parameters = list(inspect.signature(module.prepare).parameters)
    except ValueError:  # compiled functions may not say
        parameters = []
    return parameters[1].strip("_") if len(parameters) > 1 else "variant"


def _changed(word: str, value: Any, first: Any) -> Mapping[str, Any]:
    """What a variant's value, which `prepare` calls `word`, has other than the first one, by name."""
    if is_dataclass(value) and type(value) is type(first):
        mine, other = vars(value), vars(first)
        return {name: each for name, each in mine.items() if each != other[name]}
    return value if isinstance(value, Mapping) else {word: value}


def _load_side(path: Path, word: str) -> ModuleType:
    """Load a revision of an adapter under a name of its own, together with the package that it stands in.

    The adapter must import from its own package relatively: an absolute import would give both sides the same package.
    """
    top = packages(path)[-1]
    by_name = re.compile(rf"^\s*(from|import) {top.name}\b", re.MULTILINE)
    for neighbour in sorted(top.rglob("*.py")) if (top / "__init__.py").is_file() else ():
        if by_name.search(neighbour.read_text(encoding="utf-8")):
            raise UsageError(
                f"{neighbour} imports its own package by name, so two revisions would share it; use relative imports"
            )
    return _load_file(path, f"normbwd_{word}")


def _make_neighbours_importable(files: Sequence[Path]) -> None:
    """Let --impl files import what lies beside them, or their own packages, after all that is installed.

    Raises UsageError where two would get the same module that each has beside it.
    """
    tops = {path: packages(path)[-1] for path in files if not file_fault(path)}
    roots = {path: top.parent if (top / "__init__.py").is_file() else top for path, top in tops.items()}
    for path, root in roots.items():
        for name in re.findall(r"^\s*(?:from|import) +(\w+)", path.read_text(errors="replace"), re.MULTILINE):
            if len([each for each in {root, *roots.values()} if {*each.glob(f"{name}.py"), *each.glob(name)}]) > 1:
                raise UsageError(f"two --impl files have a module {name} beside them; use `from .{name} import`")
    sys.path += [str(root) for root in dict.fromkeys(roots.values()) if str(root) not in sys.path]


def _load_file(path: Path, prefix: str | None = None) -> ModuleType:
    if fault := file_fault(path):
        raise UsageError(f"--impl {path}: {fault}")
    *_, top = folders = packages(path)
    prefix = prefix or f"normbwd_impl_{crc32(bytes(top))}"
    for folder in folders:
        # An empty package: its own __init__.py is not run, as it is no part of the adapter.
        package = ModuleType(".".join((prefix, *folder.relative_to(top).parts)))
        package.__path__ = [str(folder)]
        sys.modules[package.__name__] = package
    name = ".".join((prefix, *path.parent.relative_to(top).parts, path.stem.replace(".", "_")))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and Triton look a function's module up by name
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"--impl {path}: line {error.lineno}: {error.msg}; mend the syntax") from error
    except (Exception, SystemExit) as error:
        rule = INSIDE_FUNCTIONS if isinstance(error, ImportError) else ""
        raise UsageError(f"--impl {path} cannot be imported: {type(error).__name__}: {error}{rule}") from error
    return module


def _load_entry_point(point: Any) -> ModuleType:
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"entry point {point.name!r} ({point.value}) cannot be imported: {type(error).__name__}: {error}; "
            "mend or uninstall that package"
        ) from error
