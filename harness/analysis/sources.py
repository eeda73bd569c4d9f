"""Hashes of the code that decides a figure: of each adapter with its imports from impls/, and of the engine by room.

A hash is of the syntax tree without docstrings, so comments and layout do not change it. The text of a tree is made
here, because that of `ast.dump` differs between versions of Python.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from functools import cache
from pathlib import Path
from typing import TypeVar

from harness.errors import UsageError
from harness.records.published_plan import CHECKOUT

_Node = TypeVar("_Node", ast.Module, ast.ClassDef)

SHOWN = 12  # digits of a hash
ADAPTERS = "impls"
# The rooms whose code decides a figure, and their modules that do not: which cases are measured (the rows name them),
# datasheet figures (the settings and the device record hold them), and how a worker is found and spoken to. From
# harness/results the engine uses the stopping rule and the limits of checks; a file holds the samples themselves.
NO_FIGURE: Mapping[str, frozenset[str]] = {
    "harness/cases": frozenset({"catalogue", "models", "suites", "tuned"}),
    "harness/devices": frozenset({"detection", "facts", "profiles"}),
    "harness/timing": frozenset(),
    "harness/verify": frozenset(),
    "harness/worker": frozenset({"contract", "discovery", "libraries", "messages", "own_process", "revisions"}),
}
OF_THE_PARENT = "harness/run"
PARENTS_MODULES = ("compile_ahead", "runner")  # fresh processes, their order, and the caches that they find
OF_TIMES_ALONE = ("harness/timing",)


def sources_of(adapters: Iterable[str], timed: bool, checkout: Path = CHECKOUT) -> dict[str, str]:
    """The hash of each room of the engine, and of each of these adapters that is in impls/, by path.

    Unless `timed`, harness/timing is left out. Raises UsageError for a file that is not Python.
    """
    rooms = [room for room in (*NO_FIGURE, OF_THE_PARENT) if timed or room not in OF_TIMES_ALONE]
    own = sorted({path for path in adapters if is_own(path) and (checkout / path).is_file()})
    return {path: hash_of(path, checkout) for path in (*rooms, *own)}


def is_own(adapter: str) -> bool:
    """Whether an adapter, as a run names its file, is one of this project's."""
    return adapter.startswith(f"{ADAPTERS}/")


def hash_of(path: str, checkout: Path = CHECKOUT, *, without: Iterable[str] = ()) -> str:
    """The hash of the code that is here now under a path of `sources_of`; raises UsageError where there is none.

    `without` names definitions that are left out: FILE:NAME, or FILE:CLASS.NAME.
    """
    left_out, digest = frozenset(without), hashlib.sha256()
    for file in _files(path, checkout):
        name = file.relative_to(checkout).as_posix()
        names = frozenset(item.removeprefix(f"{name}:") for item in left_out if item.startswith(f"{name}:"))
        text = _tree_text(file, file.stat().st_mtime_ns, names)
        digest.update(f"{name}\n{text}\n".encode())
    return digest.hexdigest()[:SHOWN]


def _files(path: str, checkout: Path) -> list[Path]:
    files = _of_adapter(path, checkout) if is_own(path) else _of_room(path, checkout)
    if not files:
        raise UsageError(f"there is no {path} in {checkout}")
    return sorted(files)


def _of_room(room: str, checkout: Path) -> list[Path]:
    modules = checkout.joinpath(room).rglob("*.py")
    if room == OF_THE_PARENT:
        return [path for path in modules if path.stem in PARENTS_MODULES]
    return [path for path in modules if path.stem not in NO_FIGURE.get(room, ())]


def _of_adapter(adapter: str, checkout: Path) -> set[Path]:
    """An adapter's file, and all files of impls/ that it imports, directly or indirectly."""
    to_visit, files = [checkout / adapter], set[Path]()
    while to_visit:
        file = to_visit.pop()
        if file not in files and file.is_file():
            files.add(file)
            package = file.relative_to(checkout).parent.parts
            for module in _imported(file, file.stat().st_mtime_ns, package):
                to_visit += _files_of(module, checkout)
    return files


@cache
def _imported(file: Path, _changed_ns: int, package: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    """The modules of impls/ that a file in a package may import, by any import statement in it."""
    modules: set[tuple[str, ...]] = set()
    for node in ast.walk(_parsed(file, _changed_ns)):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = (*above, *(node.module.split(".") if node.module else ()))
            names = [module, *((*module, alias.name) for alias in node.names)]
        else:
            continue
        modules.update(name for name in names if name[:1] == (ADAPTERS,))
    return frozenset(modules)


def _files_of(module: tuple[str, ...], checkout: Path) -> Iterator[Path]:
    """Where a module is, and the packages that it is in."""
    for depth in range(1, len(module) + 1):
        place = checkout.joinpath(*module[:depth])
        yield from (place / "__init__.py", place.with_suffix(".py"))


@cache
def _tree_text(file: Path, _changed_ns: int, left_out: frozenset[str]) -> str:
    """A file's syntax tree in one line, without docstrings, empty fields and what is left out.

    It is cached until the file changes.
    """
    tree = _parsed(file, _changed_ns)
    return _as_text(_without(tree, left_out) if left_out else tree)


def _without(node: _Node, left_out: frozenset[str], within: str = "") -> _Node:
    """A copy without the statements that define nothing but names that are left out."""
    kept = copy(node)
    kept.body = []
    for statement in node.body:
        names = {within + name for name in names_of(statement)}
        if isinstance(statement, ast.ClassDef) and not names <= left_out:
            kept.body.append(_without(statement, left_out, f"{within}{statement.name}."))
        elif not names or not names <= left_out:
            kept.body.append(statement)
    return kept


def names_of(statement: ast.stmt) -> set[str]:
    """The names that a definition, an assignment or an import defines; none of another statement."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            names = {alias.asname or alias.name.partition(".")[0] for alias in aliases}
            return set() if "*" in names else names
        case ast.Assign(targets=targets):
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            return names if len(names) == len(targets) else set()
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


@cache
def _parsed(file: Path, _changed_ns: int) -> ast.Module:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not Python: {error}; mend it") from error


def _as_text(value: object) -> str:
    if isinstance(value, ast.JoinedStr):  # Python 3.12 ends some with an empty constant
        value = ast.JoinedStr(
            [part for part in value.values if not (isinstance(part, ast.Constant) and not part.value)]
        )
    if isinstance(value, ast.AST):
        fields = ((name, _as_text(field)) for name, field in ast.iter_fields(value) if name != "kind")
        return f"{type(value).__name__}({','.join(f'{name}={text}' for name, text in fields if text)})"
    if isinstance(value, list):
        return "".join(f"{_as_text(item)};" for item in value if not _is_docstring(item))
    return "" if value is None else repr(value)


def _is_docstring(node: object) -> bool:
    """Whether a statement is only a string."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
