"""An implementation as the harness calls it: an adapter module, one of its variants, or one of its configurations.

docs/add-an-implementation.md has the whole contract; `harness.worker.discovery` finds adapters and checks their shape.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal, get_args

from harness.cases.case import DeviceKind, Norm, NormCase
from harness.cases.input_kinds import INPUT_KINDS
from harness.cases.inputs import Grads, Inputs
from harness.cases.variants import needs, probes
from harness.errors import UnsupportedError, UsageError

Config = Any  # what JSON can hold: an adapter's own settings, handed back to its `prepare`
RUN_FOLDER = "NORMBWD_RUN_FOLDER"  # a worker's environment: a folder of the run, for what its processes share


@dataclass(frozen=True)
class Configured:
    """The configuration that a case runs with; `name` is None where that is the adapter's default."""

    name: str | None
    config: Config = None
    file: str = ""  # of tuned configurations, that it was read from
    tried: int = 0  # so many beside the default, before that file was written

    @property
    def is_chosen(self) -> bool:
        """Whether a command or a file chose it, so that a row has to name it."""
        return self.name is not None or bool(self.file)


@dataclass(frozen=True)
class Implementation:
    """One implementation that can be asked for by name.

    `arguments` holds the variant's value, the second argument of the adapter's functions. `configured` says which
    configuration a case runs with, or raises UnsupportedError; without it every case runs with the adapter's default.
    A method for which the adapter has no function gives the plain answer.
    """

    name: str
    family: str
    source: str
    module: ModuleType
    arguments: tuple[Any, ...] = ()
    configured: Callable[[NormCase], Configured] | None = None

    @property
    def variant(self) -> str:
        """The name in the adapter, of which this may be a revision (`NAME@base`) or a configuration (`NAME#07`)."""
        return self.name.partition("@")[0].partition("#")[0]

    @property
    def version(self) -> int:
        return getattr(self.module, "version", 0)

    @property
    def via(self) -> Literal["kernel", "autograd"]:
        return getattr(self.module, "via", "kernel")

    @property
    def in_place(self) -> bool:
        return getattr(self.module, "in_place", False)

    @property
    def handles(self) -> dict[Norm, frozenset[str]]:
        """The features of a case, beyond the plain one, that the adapter knows, by norm."""
        declared: Any = getattr(self.module, "handles", ())
        by_norm: Mapping[str, Iterable[str]] = declared if isinstance(declared, Mapping) else {}
        return {norm: frozenset(by_norm.get(norm, ()) if by_norm else declared) for norm in get_args(Norm)}

    def meets(self, norm: Norm) -> frozenset[str]:
        """What a norm may ask beyond a plain one (`harness.cases.variants.needs`) that this runs itself.

        That is what the adapter handles, and does not refuse on a GPU in a case of the usual shape and dtypes.
        """
        plain, *others = probes(norm, self.handles[norm])
        refuses_all = self._refuses(plain)  # and so whatever is around it
        met = (case for case in others if refuses_all or not self._refuses(case))
        return frozenset(need for case in met for need in needs(case))

    def _refuses(self, case: NormCase) -> bool:
        try:
            return bool(self.module.unsupported(case, *self.arguments))
        except Exception:  # the trial will meet it again, and record it
            return False

    @property
    def compiles_ahead(self) -> bool:
        return self._declared("compiles_ahead")

    @property
    def on_request(self) -> bool:
        return self._declared("on_request")

    @property
    def slow_to_compile(self) -> bool:
        return bool(getattr(self.module, "slow_to_compile", False))

    @property
    def for_speed(self) -> list[str]:
        """The rows by which the library may be faster than by its first: as declared, or else all other variants."""
        return list(getattr(self.module, "for_speed", list(getattr(self.module, "variants", ()))[1:]))

    @property
    def outside(self) -> str:
        """Why running it here is outside what it was made for; empty where it is not."""
        declared = getattr(self.module, "outside", "")
        return _text("outside", declared() if callable(declared) else declared) or ""

    @property
    def summary(self) -> str:
        return str(self.module.__doc__ or "").strip().partition("\n")[0]

    def missing(self) -> str | None:
        """Say which library is not installed here, or why the one that is cannot be used; None if all is there."""
        try:
            explained = _text("missing", self._explained()) if hasattr(self.module, "missing") else None
        except Exception as error:  # a check that fails must not take the other implementations with it
            explained = f"cannot be checked: {type(error).__name__}: {error}"
        absent = [module for module in self.module.requires if not _importable(module)]  # some import others
        install: str | None = getattr(self.module, "install", None)
        how = f"; {install}" if install else ""
        return explained or (f"not installed: {', '.join(absent)}{how}" if absent else None)

    def _explained(self) -> str | None:
        """The adapter's own answer, for the whole adapter or for the variant, as its function asks."""
        takes = len(inspect.signature(self.module.missing).parameters)
        return self.module.missing(*self.arguments[:takes])

    def misconfigured(self, device: DeviceKind) -> str | None:
        """Say what is wrong with a setting that the adapter reads from the environment, or None."""
        answer = getattr(self.module, "misconfigured", None)
        try:
            return _text("misconfigured", answer(device)) if answer else None
        except Exception as error:
            raise UsageError(
                f"{self.source}: misconfigured({device!r}) failed: {type(error).__name__}: {error}"
            ) from error

    def unsupported(self, case: NormCase) -> str | None:
        """Say why this case cannot run, or None; what the case has beyond a plain one has to be handled."""
        if unknown := [feature for feature in case.features if feature not in self.handles[case.norm]]:
            return f"does not handle {', '.join(unknown)}"
        if getattr(self.module, "contiguous_only", False) and not INPUT_KINDS[case.inputs].contiguous:
            return "takes contiguous inputs alone"
        if reason := _text("unsupported", self.module.unsupported(case, *self.arguments)):
            return reason
        try:
            self.config_of(case)
        except UnsupportedError as error:
            return str(error)
        return None

    def untimed(self, case: NormCase) -> str | None:
        """Say why this case must not be timed though it can be verified, or None."""
        return _text("untimed", self._optional("untimed", case))

    def saves(self, case: NormCase) -> str | None:
        """Say what the backward keeps of x's elements, such as y or xhat in place of x, or None."""
        return _text("saves", self._optional("saves", case))

    def notes(self, case: NormCase) -> list[str]:
        """What a reader of this row should know: traps absorbed, detours taken, which configuration ran."""
        notes = self._optional("notes", case) or ()
        if isinstance(notes, str) or not all(isinstance(note, str) for note in notes):
            raise TypeError(f"notes must return a list of texts; it returned {notes!r}")
        return list(notes)

    def configs(self, case: NormCase) -> Mapping[str, Config]:
        """The configurations of a case that the adapter offers, by name, its default first; none if it has no such."""
        return self._optional("configs", case) or {}

    def config_of(self, case: NormCase) -> Configured:
        """The configuration that this case runs with; raises UnsupportedError where there is none."""
        return self.configured(case) if self.configured else Configured(None)

    def with_configs(self, name: str, configured: Callable[[NormCase], Configured]) -> Implementation:
        """The same adapter under another name, each case with the configuration that `configured` gives."""
        return replace(self, name=name, configured=configured)

    def import_ahead(self) -> None:
        """Import what the adapter names; an error is left to `prepare`, which may meet it again."""
        for module in getattr(self.module, "imports", ()):
            with suppress(Exception):
                importlib.import_module(module)

    def release(self) -> None:
        """Let the adapter give back the device memory that it keeps between backwards."""
        if release := getattr(self.module, "release", None):
            release()

    def prepare(self, inputs: Inputs) -> Callable[[], Grads]:
        """Do all that is not the backward; return the backward."""
        configured = self.config_of(inputs.case)
        options = {} if configured.name is None else {"config": configured.config}
        return self.module.prepare(inputs, *self.arguments, **options)

    @property
    def has_forward(self) -> bool:
        return hasattr(self.module, "forward_backward")

    def forward_backward(self, inputs: Inputs) -> Callable[[], Grads]:
        """A call of the library's own forward, and of the backward behind it; may raise UnsupportedError."""
        return self.module.forward_backward(inputs, *self.arguments)

    def _declared(self, what: str) -> bool:
        """A declaration that is true of the whole adapter, or of the variants that it names."""
        declared: bool | Container[str] = getattr(self.module, what, False)
        return declared if isinstance(declared, bool) else self.variant in declared

    def _optional(self, function: str, case: NormCase) -> Any:
        answer = getattr(self.module, function, None)
        return answer(case, *self.arguments) if answer else None


def _text(function: str, answer: Any) -> str | None:
    """The answer of an adapter's function that says why, or None; raises TypeError where it is neither."""
    if answer is not None and not isinstance(answer, str):
        raise TypeError(f"{function} must return a text or None; it returned {answer!r}")
    return answer or None


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
