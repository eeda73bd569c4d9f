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
from harness.records.settings import Settings, in_words
from harness.run.invocation import Invocation

CASES = ("suite", "shapes", "norm", "variant", "gradients", "dtype", "weight_dtype", "weight", "bias", "zero_centred")
MACHINE_OPTIONS = ("device", "out", "allow_others", "time_limit_s")
RUN_OPTIONS = (*CASES, "eps", *MACHINE_OPTIONS, "format", "impls", "impl_files", "seed", "resume", "compile_ahead")
TIMED = ("tuned_files", "baseline", "flush", "context", "holder", "quick", "processes", "twice", "cross_check")
BENCH = (*RUN_OPTIONS, "draw", *TIMED)  # without those of a fleet
# The help has these first, in this order, and the others in a panel for experts.
COMMON = (
    *("base", "head", "suite", "shapes", "norm", "variant", "dtype", "inputs", "device", "impls", "impl_files"),
    *("baseline", "quick", "processes", "tuned_files", "out", "resume", "format", "dry_run"),
    *("sanitizer", "minutes", "only", "check"),
)
FIELDS = Settings.model_fields | Invocation.model_fields


def options(
    *names: str, hidden: Collection[str] = (), **helps: str
) -> Callable[[Callable[[Invocation], None]], Callable[..., None]]:
    """A decorator that gives a command the options of these fields, and calls it with the resulting Invocation.

    The `hidden` options are not in its help: the command refuses them with a reason. `helps` has the help of options
    that mean something else here than their fields say, with the default of this command in words. An option that was
    not typed stays unset, so that the default of its field holds.
    """

    def decorate(command: Callable[[Invocation], None]) -> Callable[..., None]:
        def run(**typed: Any) -> None:
            values = {name: value for name, value in typed.items() if value is not None}
            command(invocation_of(values, command_line()))

        in_order = sorted(names, key=lambda name: COMMON.index(name) if name in COMMON else len(COMMON))
        parameters = [_parameter(name, FIELDS[name], helps.get(name), name in hidden) for name in in_order]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__dict__["__signature__"] = Signature(parameters)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def option_name(name: str) -> str:
    """The option of a field: its name without unit or kind of value, `--time-limit` for `time_limit_s`."""
    return "--" + name.removesuffix("_s").removesuffix("_files").replace("_", "-")


def command_line() -> str:
    """The command line as another person would type it."""
    return shlex.join(["normbwd", *sys.argv[1:]])


def _parameter(name: str, field: FieldInfo, own_help: str | None, hidden: bool) -> Parameter:
    has_shown_default = own_help is None and field.default and field.default is not True
    option = typer.Option(
        *(() if field.default is True else (option_name(name),)),  # Typer adds --no-NAME to an option that is on
        help=own_help or field.description,
        hidden=hidden,
        rich_help_panel=None if name in COMMON else "For experts",
        show_default=in_words(field.default) if has_shown_default else False,
    )
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[_typer_type(field), option])


def _typer_type(field: FieldInfo) -> Any:
    """The type that Typer reads: a list for a tuple of files; text for what `Settings` parses and checks."""
    if field.annotation == tuple[Path, ...]:
        return list[Path] | None
    if get_origin(field.annotation) in (Literal, tuple):
        return str | None
    annotation: Any = field.annotation
    return annotation | None


def invocation_of(values: dict[str, Any], command: str) -> Invocation:
    """The invocation of typed values by name of field; raises UsageError for a value that its field does not take."""
    settings = {name: values.pop(name) for name in list(values) if name in Settings.model_fields}
    try:
        return Invocation(settings=Settings(**settings), command=command, **values)
    except ValidationError as error:
        fault = error.errors()[0]
        allowed = str(fault.get("ctx", {}).get("expected", fault["msg"])).replace("'", "").replace(" or ", ", ")
        raise UsageError(f"{option_name(str(fault['loc'][0]))} {fault['input']}: not one of {allowed}") from error
