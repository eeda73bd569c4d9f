"""Hashes of the code that decides a figure: of each adapter with what it imports of impls/, and of the engine by room.

A hash is of the syntax tree without docstrings, so that neither a comment nor a layout changes it. The tree is written
down here, as what Python itself prints of one differs from version to version.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from harness.errors import UsageError
from harness.results.published.planned import CHECKOUT

SHOWN = 12  # digits of a hash
ADAPTERS = "impls"
# The rooms whose code decides a figure, and the modules of each that do not: which cases are measured (the rows name
# them), what a datasheet says (the settings and the device record hold it), and how parent and child find each other.
# Of harness/results the engine takes when there are enough blocks and whether a check passed; a file holds the samples.
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
    """The hash of each room of the engine, and of each of these adapters that is this project's own, by its path.

    Where nothing is timed the room that times is left out. Raises UsageError for a file that Python cannot read.
    """
    rooms = [room for room in (*NO_FIGURE, OF_THE_PARENT) if timed or room not in OF_TIMES_ALONE]
    own = sorted({path for path in adapters if is_own(path) and (checkout / path).is_file()})
    return {path: hash_of(path, checkout) for path in (*rooms, *own)}


def is_own(adapter: str) -> bool:
    """Whether an adapter, as a run names its file, is one of this project's."""
    return adapter.startswith(f"{ADAPTERS}/")


def hash_of(path: str, checkout: Path = CHECKOUT) -> str:
    """The hash of what stands here now under a path of `sources_of`; raises UsageError where nothing does."""
    files = _of_adapter(path, checkout) if is_own(path) else _of_room(path, checkout)
    if not files:
        raise UsageError(f"there is no {path} in {checkout}")
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(checkout).as_posix()}\n{_plainly(file)}\n".encode())
    return digest.hexdigest()[:SHOWN]


def _of_room(room: str, checkout: Path) -> list[Path]:
    modules = checkout.joinpath(room).rglob("*.py")
    if room == OF_THE_PARENT:
        return [path for path in modules if path.stem in PARENTS_MODULES]
    return [path for path in modules if path.stem not in NO_FIGURE.get(room, ())]


def _of_adapter(adapter: str, checkout: Path) -> set[Path]:
    """An adapter's file, and all that it imports of impls/, directly or by way of others."""
    left, reached = [checkout / adapter], set[Path]()
    while left:
        file = left.pop()
        if file not in reached and file.is_file():
            reached.add(file)
            left += _imported(file, checkout)
    return reached


def _imported(file: Path, checkout: Path) -> Iterator[Path]:
    """The files of impls/ that a file may import, by any import statement in it; packages by their __init__.py."""
    package = file.relative_to(checkout).parent.parts
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = (*above, *(node.module.split(".") if node.module else ()))
            names = [module, *((*module, alias.name) for alias in node.names)]
        else:
            continue
        for name in names:
            if name[:1] == (ADAPTERS,):
                yield from _files_of(name, checkout)


def _files_of(module: tuple[str, ...], checkout: Path) -> Iterator[Path]:
    for depth in range(1, len(module) + 1):
        place = checkout.joinpath(*module[:depth])
        yield from (place / "__init__.py", place.with_suffix(".py"))


def _plainly(file: Path) -> str:
    """A file's syntax tree in one line, without docstrings and without what is empty."""
    return _read(file, file.stat().st_mtime_ns)


@cache
def _read(file: Path, _changed_ns: int) -> str:
    return _written(_tree(file))


def _tree(file: Path) -> ast.Module:
    return _parsed(file, file.stat().st_mtime_ns)


@cache
def _parsed(file: Path, _changed_ns: int) -> ast.Module:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not Python: {error}; mend it") from error


def _written(value: object) -> str:
    if isinstance(value, ast.JoinedStr):  # Python 3.12 ends some with an empty constant
        value = ast.JoinedStr(
            [part for part in value.values if not (isinstance(part, ast.Constant) and not part.value)]
        )
    if isinstance(value, ast.AST):
        fields = ((name, _written(field)) for name, field in ast.iter_fields(value) if name != "kind")
        return f"{type(value).__name__}({','.join(f'{name}={text}' for name, text in fields if text)})"
    if isinstance(value, list):
        return "".join(f"{_written(item)};" for item in value if not _is_text_alone(item))
    return "" if value is None else repr(value)


def _is_text_alone(node: object) -> bool:
    """Whether a statement is a string and nothing else: a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
