"""The tuned file: which configuration of which implementation is fastest for which case, on one device.

`normbwd tune` writes it; `bench --tuned` and an adapter that takes its configurations from it read it. Importable
without torch.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from harness.cases.case import NormCase

SCHEMA_VERSION = 2  # 1 held launches of the in-house kernel alone


class _Strict(BaseModel):
    """Nothing unknown, nothing changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class TunedSpeedup(_Strict):
    """How many times faster than the default, with its 95 % interval and in how many processes that was measured."""

    value: float
    low: float
    high: float
    processes: int


class TunedCase(_Strict):
    """What was measured for one implementation on one case; times are medians in microseconds.

    Without a `config_name` the default stays, and `why` may say why. `default_us` is None where the default itself
    could not be measured, so that nothing is known. `tried` counts the configurations measured beside the default.
    """

    impl: str
    case: NormCase
    tried: int
    default_us: float | None = None
    best_us: float | None = None
    speedup: TunedSpeedup | None = None
    config_name: str | None = None
    config: JsonValue = None
    why: str = ""


class TunedFile(_Strict):
    """The fastest configurations on one device, and with which software they were found, when."""

    schema_version: Literal[2] = SCHEMA_VERSION
    device: str
    multiprocessors: int | None = None
    libraries: dict[str, str] = {}
    date: str
    revision: str | None = None
    cases: list[TunedCase]

    def measured(self, impl: str) -> list[TunedCase]:
        """The cases of an implementation whose default was measured."""
        return [case for case in self.cases if case.impl == impl and case.default_us is not None]

    def other_device(self, name: str, multiprocessors: int | None) -> str | None:
        """Say that the file belongs to another device than this one, or None."""
        if (self.device, self.multiprocessors or multiprocessors) == (name, multiprocessors or self.multiprocessors):
            return None
        theirs, ours = _device(self.device, self.multiprocessors), _device(name, multiprocessors)
        return f"belongs to {theirs}, and this is {ours}; run `normbwd tune` here"


@lru_cache
def read_tuned(path: str) -> TunedFile:
    """Read a tuned file once; raises ValueError with one line that says what is wrong and how to mend it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ValueError(f"cannot read {path}: {why}; name a file that `normbwd tune` wrote") from error
    try:
        return TunedFile.model_validate_json(text)
    except ValidationError as error:
        first: Any = error.errors()[0]
        versions = [item["input"] for item in error.errors() if item["loc"] == ("schema_version",)]
        if versions:
            what = f"has schema {versions[0]}, and this version reads {SCHEMA_VERSION}"
        else:
            where = ".".join(map(str, first["loc"])) or "the file"
            what = f"is no tuned file ({where}: {first['msg'].removeprefix('Value error, ')})"
        raise ValueError(f"{path} {what}; run `normbwd tune` again") from error


def _device(name: str, multiprocessors: int | None) -> str:
    return f"{name} ({multiprocessors} multiprocessors)" if multiprocessors else name
