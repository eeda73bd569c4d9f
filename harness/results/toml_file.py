"""Reads a hand-written TOML file into its model, and reports a fault in one line."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from harness.errors import UsageError

_Model = TypeVar("_Model", bound=BaseModel)


def _message_only(_where: Sequence[int | str], _kind: str, message: str) -> str:
    return message


def read_toml(
    path: Path,
    model: type[_Model],
    if_absent: str,
    fault: Callable[[Sequence[int | str], str, str], str] = _message_only,
) -> _Model:
    """Read a file as its model; raises UsageError with the key at fault.

    `if_absent` is the hint for a file that cannot be read. `fault` makes the text of an error from the keys that lead
    to it, pydantic's type of the error and its message.
    """
    try:
        return model.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; {if_absent}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}; mend the line") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        text = fault(first["loc"], first["type"], first["msg"].removeprefix("Value error, "))
        raise UsageError(f"{path}: {where + ': ' if where else ''}{text}") from error
