"""Options of the command line, made from the fields of `Settings` and `Invocation` that have a description."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from harness.errors import UsageError
from harness.results.settings import Settings
from harness.run.invocation import Invocation

CASES = ("suite", "shapes", "norm", "variant", "dtype", "weight_dtype", "weight", "bias", "zero_centred", "eps")
CASES_PANEL = (*CASES, "inputs")  # of the help; only `verify` chooses inputs
FIELDS = Settings.model_fields | Invocation.model_fields


def options(*names: str, hidden: Collection[str] = ()) -> Callable[[Callable[[Invocation], None]], Callable[..., None]]:
    """Give a command the options of these fields; it is called with the Invocation that they make.

    `hidden` ones, which the command refuses with a reason, are not in its help. An option that is not typed is not set
    in the record, whose default then holds.
    """

    def decorate(command: Callable[[Invocation], None]) -> Callable[..., None]:
        def run(**typed: Any) -> None:
            command(_invocation({name: value for name, value in typed.items() if value is not None}))

        parameters = [_parameter(name, FIELDS[name], name in hidden) for name in names]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__dict__["__signature__"] = Signature(parameters)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def option_of(name: str) -> str:
    """How a field is typed: its name without a unit or the kind of value, `--time-limit` for `time_limit_s`."""
    return "--" + name.removesuffix("_s").removesuffix("_files").replace("_", "-")


def command_line() -> str:
    """The command line as another person would type it."""
    return shlex.join(["normbwd", *sys.argv[1:]])


def _parameter(name: str, field: FieldInfo, hidden: bool) -> Parameter:
    option = typer.Option(
        *(() if field.default is True else (option_of(name),)),  # what is on by default gets a --no- as well
        help=field.description,
        hidden=hidden,
        rich_help_panel="Cases" if name in CASES_PANEL else None,
        show_default=str(field.default) if field.default and field.default is not True else False,
    )
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[_typed(field), option])


def _typed(field: FieldInfo) -> Any:
    """The type that Typer reads: it knows no tuple of any length, and a Literal is refused in our words."""
    if get_origin(field.annotation) is tuple:
        return list[Path] | None
    if get_origin(field.annotation) is Literal:
        return str | None
    typed: Any = field.annotation
    return typed | None


def _invocation(given: dict[str, Any]) -> Invocation:
    settings = {name: given.pop(name) for name in list(given) if name in Settings.model_fields}
    try:
        return Invocation(settings=Settings(**settings), command=command_line(), **given)
    except ValidationError as error:
        fault = error.errors()[0]
        allowed = str(fault.get("ctx", {}).get("expected", fault["msg"])).replace("'", "").replace(" or ", ", ")
        raise UsageError(f"{option_of(str(fault['loc'][0]))} {fault['input']}: not one of {allowed}") from error
