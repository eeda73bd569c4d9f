"""Two revisions of one implementation, interleaved in one run like any other two implementations."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.errors import UsageError
from harness.run.session import inventory
from harness.run.settings import Choice
from harness.worker.revisions import two_sides

OWN = Path(__file__).resolve().parents[2]  # where "impls/quack.py" is looked for


@contextmanager
def revisions_chosen(choice: Choice, base: str, head: str) -> Generator[tuple[Choice, str]]:
    """The choice of a bench that compares two revisions of `choice.impls`, and the name of the newer one.

    Both revisions stay checked out as long as the context lasts. Raises UsageError where `choice.impls` is not one
    implementation, and as `two_sides` does.
    """
    if choice.impls is None or "," in choice.impls or "*" in choice.impls:
        raise UsageError("compare takes one implementation: --impls NAME")
    name = choice.impls.strip()
    with two_sides(_file_of(choice, name), base, head) as sides:
        names = [f"{name}@{side.word}" for side in sides]
        named = str(choice.impl_files[0]) if choice.impl_files else None
        chosen = replace(choice, sides=tuple(replace(side, named=named) for side in sides), impl_files=())
        yield replace(chosen, impls=",".join(names), baseline=names[0]), names[1]


def _file_of(choice: Choice, name: str) -> Path:
    files = list(choice.impl_files)
    if len(files) > 1:
        raise UsageError("compare takes one --impl file: the adapter whose revisions are compared")
    if files:
        return files[0]
    known = {item.name: item for item in inventory(choice).implementations}
    if name not in known:
        raise UsageError(f"no implementation is called {name!r}; choose from {', '.join(known)}")
    file = OWN / known[name].source
    if not file.is_file():
        raise UsageError(f"{name} comes from an entry point; give its file with --impl")
    return file
