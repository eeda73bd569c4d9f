"""Checks that a module has the shape of an adapter, as docs/add-an-implementation.md describes it.

A fault is reported here in one line, before anything runs; unchecked it would crash in the middle of a case.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from importlib.machinery import all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from harness.cases import Norm

NEEDED = ("name", "requires", "unsupported", "prepare")
WITH_CASE = ("unsupported", "untimed", "saves", "notes", "configs")  # functions of a case
NOT_IN_A_NAME = frozenset(", \t\n*?[]@#")  # used by `--impls` to separate and match, and by the harness for suffixes


def file_fault(path: Path) -> str | None:
    """Why a path is no file of Python; None for one."""
    if path.is_dir():
        return "is a folder; name the adapter's file in it"
    if not path.is_file():
        return "no such file"
    return None if path.suffix in all_suffixes() else "not a Python file (its name must end in .py)"


def faults(module: ModuleType) -> list[str]:
    """What keeps a module from being an adapter, a text each; empty for an adapter."""
    if lacking := [item for item in NEEDED if not hasattr(module, item)]:
        return [f"has no {', '.join(lacking)}"]
    return [*_declarations(module), *_functions(module)]


def _declarations(module: ModuleType) -> Iterator[str]:
    variants: Any = getattr(module, "variants", None)
    if fault := _name_fault(module.name):
        yield f"name = {module.name!r}: {fault}"
    if not _are_texts(module.requires):
        mended = f", such as ({module.requires!r},)" if isinstance(module.requires, str) else ""
        yield f"requires = {module.requires!r}: must be a tuple of module names{mended}"
    if not isinstance(install := getattr(module, "install", ""), str):
        yield f"install = {install!r}: must be a text, what to type"
    if isinstance(version := getattr(module, "version", 0), bool) or not isinstance(version, int) or version < 0:
        yield f"version = {version!r}: must be a whole number, raised when a figure of this adapter may change"
    if variants is not None and not (isinstance(variants, Mapping) and variants):
        yield f"variants = {variants!r}: must be a dict of public names to values, with one entry at least"
    elif variants is not None:
        yield from (f"variants has {name!r}: {fault}" for name in variants if (fault := _name_fault(name)))
    if (via := getattr(module, "via", "kernel")) not in ("kernel", "autograd"):
        yield f"via = {via!r}: must be 'kernel' or 'autograd'"
    handles: Any = getattr(module, "handles", ())
    of_norms = (
        list(handles.values()) if isinstance(handles, Mapping) and set(handles) <= set(get_args(Norm)) else [handles]
    )
    if not all(map(_are_texts, of_norms)):
        yield f"handles = {handles!r}: must be a set of texts, such as {{'residual'}}, or a dict of such sets by norm"
    yield from _flags(module)


def _flags(module: ModuleType) -> Iterator[str]:
    for name, of in (("uses", "module names"), ("imports", "module names"), ("for_speed", "public names")):
        if not _are_texts(texts := getattr(module, name, ())):
            yield f"{name} = {texts!r}: must be a tuple of {of}"
    for name in ("outside", "library"):
        if not isinstance(text := getattr(module, name, ""), str) and not (name == "outside" and callable(text)):
            yield f"{name} = {text!r}: must be a text"
    for name in ("in_place", "contiguous_only", "slow_to_compile"):
        if not isinstance(declared := getattr(module, name, False), bool):
            yield f"{name} = {declared!r}: must be True or False"
    for name in ("compiles_ahead", "on_request"):
        declared: Any = getattr(module, name, False)
        if not isinstance(declared, bool) and not _are_texts(declared):
            yield f"{name} = {declared!r}: must be True, False or a set of public names"


def _functions(module: ModuleType) -> Iterator[str]:
    """Faults of the functions: whether each takes the arguments that the harness gives it."""
    value = ["value"] if isinstance(getattr(module, "variants", None), Mapping) else []  # the variant's value
    for name in WITH_CASE:
        if hasattr(module, name) and (fault := _call_fault(getattr(module, name), ["case", *value])):
            yield f"{name} {fault}"
    options = ["config"] if hasattr(module, "configs") else []
    if fault := _call_fault(module.prepare, ["inputs", *value], options):
        yield f"prepare {fault}"
    if hasattr(module, "missing") and (fault := _call_fault(module.missing, [])) and _call_fault(module.missing, value):
        yield f"missing {fault}"
    others = {"misconfigured": ["device"], "release": list[str](), "forward_backward": ["inputs", *value]}
    for name, arguments in others.items():
        if hasattr(module, name) and (fault := _call_fault(getattr(module, name), arguments)):
            yield f"{name} {fault}"


def _call_fault(function: Any, arguments: list[str], options: Collection[str] = ()) -> str | None:
    """Why a function cannot be called with these arguments, and optionally with these keywords; None if it can."""
    if not callable(function):
        return "must be a function"
    try:
        signature = inspect.signature(function)
    except ValueError:  # compiled functions may not say
        return None
    try:
        signature.bind(*arguments)
        signature.bind(*arguments, **dict.fromkeys(options))
    except TypeError:
        expected = ", ".join([*arguments, *(f"{option}=None" for option in options)])
        return f"takes {signature}, and is called with ({expected})"
    return None


def _name_fault(name: object) -> str | None:
    if not isinstance(name, str) or not name:
        return "must be a text"
    if name == "all":
        return "is what --impls calls every variant; take another"
    return "must have no blanks and none of , * ? [ ] @ #" if NOT_IN_A_NAME.intersection(name) else None


def _are_texts(value: object) -> bool:
    return isinstance(value, (tuple, list, set, frozenset)) and all(isinstance(item, str) for item in value)
