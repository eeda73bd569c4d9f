"""Reads a hand-written TOML file into its model, and reports a fault in one line."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from harness.errors import UsageError, name_hint

_Model = TypeVar("_Model", bound=BaseModel)


def read_toml(path: Path, model: type[_Model], if_absent: str, keys_are_in: str | None = None) -> _Model:
    """Read a file as its model; raises UsageError with the key at fault.

    `if_absent` is the hint for a file that cannot be read, `keys_are_in` the document that says what keys hold.
    """
    try:
        return model.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; {if_absent}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}; mend the line") from error
    except ValidationError as error:
        faults = error.errors()
        first = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])  # a key misspelt
        where = _in_words(first["loc"])
        if first["type"] == "extra_forbidden":
            *table, key = first["loc"]
            text = "unknown key; " + name_hint(str(key), sorted(_keys(model, table)), "there are")
        else:
            text = first["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
            text += f"; {keys_are_in} lists the keys" if keys_are_in else ""
        raise UsageError(f"{path}: {where + ': ' if where else ''}{text}") from error


def _in_words(where: Sequence[int | str]) -> str:
    """The keys that lead to a value, with places in a list counted from 1: `claim 2, rows`."""
    text = ""
    for part in where:
        if isinstance(part, int):
            text += f" {part + 1}"
        else:
            text += f"{'' if not text else ', ' if text[-1].isdigit() else '.'}{part}"
    return text


def _keys(annotation: Any, where: Sequence[int | str]) -> set[str]:
    """The keys of the table that `where` leads to, in a value of this type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not where:
            return set(annotation.model_fields)
        field = annotation.model_fields.get(str(where[0]))
        return _keys(field.annotation, where[1:]) if field else set()
    rest = where[1:] if get_origin(annotation) in (list, tuple, dict) else where
    return {key for part in get_args(annotation) for key in _keys(part, rest)}
