"""Whether head's code is base's, comments, docstrings and documents aside, so that measuring would show noise alone.

Assumed is that libraries compile a function by its syntax, and that no code reads a document that it does not name, or
the name of its commit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from warnings import catch_warnings

from harness.git import GitError, git
from harness.worker.revisions import Side, packages

# Code that says one of these may read its own text, or files around it by their paths.
READS_TEXT = re.compile(
    r"__(file|path|spec|loader|cached|doc|code)__|\bco_|lineno|_getframe|\borigin\b|\binspect\b|getsource|getdoc|cache_key"
    r"|linecache|tokenize|traceback|pkgutil|runpy|\bresources\b|spec_from_|FileLoader|FileFinder|pyximport|\.(raw_)?src\b"
)
RELATIVE = re.compile(r"\bfrom \.|importlib|import_module|__import__|__package__")
CHANGED = ("diff-tree", "-r", "-z", "--name-status", "--no-renames", "--no-relative", "--ignore-submodules=none")


def is_same_code(name: str, sides: Sequence[Side]) -> bool:
    """Whether both checkouts load the same code for the implementation `name`; False where that is not certain.

    A side loads its adapter and what it may import relatively; code that may find files by paths could read any.
    """
    files = [Path(side.file).resolve() for side in sides]
    try:
        loaded = list(map(_loaded, files))
        paths = [path for top in loaded for path in (top, *top.rglob("*"))]
        tops = [Path(git(file.parent, "rev-parse", "--show-toplevel")) for file in files]
        text = "\n".join(ast.unparse(_code(path)) for path in paths if path.suffix == ".py")
        own, own_of_head = (top.relative_to(tree) for top, tree in zip(loaded, tops, strict=True))
        reads = bool(READS_TEXT.search(text)) or any(path.is_symlink() for path in paths)

        def is_harmless(path: Path) -> bool:
            if path.suffix in (".md", ".rst"):
                return path.name not in text
            if reads or path.name == ".gitattributes":  # it changes how others are checked out
                return False
            if path.is_relative_to(own):
                return path.suffix == ".py" and len({ast.dump(_code(top / path)) for top in tops}) == 1
            return not any(re.search(rf"\b{re.escape(part)}\b", text) for part in path.with_suffix("").parts)

        changed = git(tops[0], *CHANGED, *(side.commit for side in sides)).split("\0")[1::2]
        return own == own_of_head and name in text and all(map(is_harmless, map(Path, changed)))
    except (GitError, OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False


def _loaded(file: Path) -> Path:
    """The outermost package of a file; without one its folder, or the file alone where it imports nothing of that."""
    top = packages(file)[-1]
    is_alone = not (top / "__init__.py").is_file() and not RELATIVE.search(ast.unparse(_code(file)))
    return file if is_alone else top


def _code(file: Path) -> ast.Module:
    """The code of a file without docstrings, with comments that say types, which TorchScript reads."""
    with catch_warnings(action="ignore"):
        tree = ast.parse(file.read_bytes(), type_comments=True)
    tree.type_ignores = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = node.body[ast.get_docstring(node, clean=False) is not None :]
    return tree
