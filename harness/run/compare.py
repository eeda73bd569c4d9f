"""Two revisions of one implementation, interleaved in one run like any other two implementations."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.errors import UsageError
from harness.records.published_plan import CHECKOUT
from harness.run.invocation import Invocation
from harness.run.plan import EVERY_VARIANT
from harness.worker import discovery
from harness.worker.revisions import twin_of, two_sides


def compared_name(invocation: Invocation) -> str:
    """The one name of --impls; raises UsageError where it is not one, and where there is no --base."""
    if not invocation.base:
        raise UsageError("compare needs --base, the revision to compare with")
    name = (invocation.settings.impls or "").strip()
    if name in ("", EVERY_VARIANT) or set(name) & set(",*?["):
        raise UsageError("compare takes one implementation: --impls NAME")
    return name


@contextmanager
def revisions_chosen(invocation: Invocation) -> Generator[Invocation]:
    """The invocation of a bench that compares the revisions `base` and `head` of one implementation; base is baseline.

    Both revisions stay checked out until the context ends. Raises UsageError where `--impls` is not one implementation,
    and as `two_sides` does.
    """
    name = compared_name(invocation)
    with two_sides(_adapter_file(invocation, name), invocation.base, invocation.head) as sides:
        base, head = (f"{name}@{side.word}" for side in sides)
        impl_file = str(invocation.impl_files[0]) if invocation.impl_files else None
        checked_out = tuple(replace(side, named=impl_file) for side in sides)
        chosen = invocation.changed(impls=f"{base},{head}", baseline=base, twin=twin_of(base))
        yield chosen.changed(sides=checked_out, impl_files=())


def _adapter_file(invocation: Invocation, name: str) -> Path:
    files = invocation.impl_files
    if len(files) > 1:
        raise UsageError("compare takes one --impl file: the adapter whose revisions are compared")
    if files:
        return files[0]
    source = {item.name: item.source for item in discovery.own()}.get(name)  # such as impls/quack.py
    file = CHECKOUT / source if source else None
    if file is None or not file.is_file():
        raise UsageError(f"{name} is in no checkout of normbwd; give its file with --impl")
    return file
