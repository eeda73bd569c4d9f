"""Why something is as it is, as data: a code, and the values that its sentence needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from harness.records.limits import Whole

Scalar = bool | Whole | float | str
ALL_VOID = "all_void"  # every block was void
ESCAPES = "escapes"  # work on another stream runs outside the timed span
REMEMBERS = "remembered"  # gradients do not follow new contents of dy
TEXT = "text"  # the code of what somebody else worded: an older file, or an adapter
LONGEST = 400  # characters of an exception's message
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # how JSON writes them here


class Reason(BaseModel):
    """A code with its values, and the reasons that it is made of; `reason_texts.sentence` words it for people.

    A plain string, as older files have it, is read as code `text`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings", defer_build=True)

    code: str
    fields: dict[str, Scalar | list[Scalar]] = {}
    parts: tuple[Reason, ...] = ()

    def __init__(
        self, code: str, fields: Mapping[str, Scalar | Sequence[Scalar]] | None = None, parts: Iterable[Reason] = ()
    ) -> None:
        super().__init__(code=code, fields=fields or {}, parts=tuple(parts))

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: Any) -> Any:
        return {"code": TEXT, "fields": {"text": value}} if isinstance(value, str) else value

    @field_validator("fields", mode="before")
    @classmethod
    def _finite(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields  # the schema refuses it
        return {name: _number(value) for name, value in fields.items()}

    @model_serializer(mode="wrap")
    def _without_empty(self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        written = {name: value for name, value in serialize(self).items() if value}
        if info.mode_is_json() and self.fields:  # whatever is around a reason would write null for what is not finite
            written["fields"] = {name: _written(value) for name, value in self.fields.items()}
        return written

    def __hash__(self) -> int:
        values = ((name, tuple(value) if isinstance(value, list) else value) for name, value in self.fields.items())
        return hash((self.code, frozenset(values), self.parts))


def together(reasons: Sequence[Reason]) -> Reason | None:
    """Several reasons as one; None of none."""
    return Reason("together", parts=reasons) if len(reasons) > 1 else next(iter(reasons), None)


def single(reason: Reason) -> list[Reason]:
    """The reasons that a reason of several processes or files is made of, without the numbers of processes."""
    if reason.code in ("together", "process"):
        return [each for part in reason.parts for each in single(part)]
    return [reason]


def kind(reason: Reason) -> tuple[object, ...]:
    """What a reason has in common with others that differ from it in numbers alone."""
    values = ((name, _without_numbers(value)) for name, value in sorted(reason.fields.items()))
    return reason.code, *values, *map(kind, reason.parts)


def _without_numbers(value: object) -> object:
    if isinstance(value, list):
        return tuple(_without_numbers(item) for item in value)
    return None if isinstance(value, int | float) and not isinstance(value, bool) else value


def raised(error: BaseException) -> Reason:
    """The kind of error and its message, on one line of bounded length."""
    return Reason("raised", {"type": type(error).__name__, "message": " ".join(str(error).split())[:LONGEST]})


def _number(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_number(item) for item in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [_written(item) for item in value]
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return value if is_finite else next(name for name, number in _NOT_FINITE.items() if repr(number) == repr(value))


# A reason that older files leave empty where there is none.
OptionalReason = Annotated[Reason | None, BeforeValidator(lambda value: None if value == "" else value)]
