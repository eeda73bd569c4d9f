"""The global state of a process, which all implementations share: how each part is read and restored."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from harness.verify import output


@dataclass(frozen=True)
class Setting:
    """A global setting: how it is read, as something to compare, and how it is put back."""

    read: Callable[[], Any]
    put: Callable[[Any], None]


def _attribute(owner: Any, name: str) -> Setting:
    return Setting(lambda: getattr(owner, name), lambda was: setattr(owner, name, was))


def _put_deterministic(was: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(was[0], warn_only=was[1])


def _put_device(was: torch.device) -> None:
    torch.set_default_device(None if was.type == "cpu" else was)


def _put_gradient_mode(was: bool) -> None:
    torch.set_grad_enabled(was)


def _signal_handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _put_signal_handlers(was: dict[int, Any]) -> None:
    for number, handler in _signal_handlers().items():
        if handler != was[number] and was[number] is not None:  # None: not one of Python's
            signal.signal(number, was[number])


def _put_filters(was: list[Any]) -> None:
    warnings.filters[:] = was  # pyright: ignore[reportIndexIssue]


def _put_timer(was: bool) -> None:
    """Stop it: a run sets none."""
    if not was:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _put_environment(was: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(was)


def _put_collection(was: bool) -> None:
    (gc.enable if was else gc.disable)()


TORCH: dict[str, Setting] = {
    "torch's default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": Setting(torch.get_default_device, _put_device),
    "torch's float32 matmul precision": Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "torch's deterministic algorithms": Setting(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        _put_deterministic,
    ),
    "torch's gradient mode": Setting(torch.is_grad_enabled, _put_gradient_mode),
    "torch's number of threads": Setting(torch.get_num_threads, torch.set_num_threads),
    "torch's cuDNN benchmark mode": _attribute(torch.backends.cudnn, "benchmark"),
    "torch's cuDNN deterministic mode": _attribute(torch.backends.cudnn, "deterministic"),
}
ON_GPU: dict[str, Setting] = {
    "torch's current device": Setting(torch.cuda.current_device, torch.cuda.set_device),
    "torch's current stream": Setting(torch.cuda.current_stream, torch.cuda.set_stream),
}
WARNINGS = "Python's filters of warnings"
PROCESS: dict[str, Setting] = {
    "the working directory": Setting(Path.cwd, os.chdir),
    WARNINGS: Setting(lambda: list(warnings.filters), _put_filters),
    "Python's garbage collection": Setting(gc.isenabled, _put_collection),
    "handlers of signals": Setting(_signal_handlers, _put_signal_handlers),
    "the standard output": Setting(output.read, output.put),
}
if hasattr(signal, "setitimer"):
    PROCESS["the timer of signals"] = Setting(lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0, _put_timer)
if sys.platform == "linux":
    import resource

    PROCESS["the limit on memory"] = Setting(
        lambda: resource.getrlimit(resource.RLIMIT_AS), lambda was: resource.setrlimit(resource.RLIMIT_AS, was)
    )
    PROCESS["the CPUs of this process"] = Setting(
        lambda: os.sched_getaffinity(0), lambda was: os.sched_setaffinity(0, was)
    )
ENVIRONMENT = Setting(lambda: dict(os.environ), _put_environment)


def settings() -> dict[str, Setting]:
    """All settings that can be read here; those of a GPU once there is a context on it."""
    return TORCH | PROCESS | (ON_GPU if torch.cuda.is_initialized() else {})


Namespaces = Mapping[str, tuple[Any, Mapping[str, Any]]]


def functions() -> Namespaces:
    """The namespaces whose functions others rely on, by name: each with what is in it now."""
    shared = {"torch": torch, "torch.nn.functional": torch.nn.functional, "torch.cuda": torch.cuda, "time": time}
    shared |= {"torch.Tensor": torch.Tensor, "torch.cuda.Event": torch.cuda.Event, "torch.ops.aten": torch.ops.aten}
    shared |= {name: module for name, module in sys.modules.items() if name.startswith("harness.")}
    return {name: (owner, dict(vars(owner))) for name, owner in shared.items()}


def replaced(before: Namespaces) -> list[tuple[str, Any, str, Any]]:
    """Public functions that were replaced: the full name, its owner, its name there, and the original.

    What is added is no replacement, but in a class, where it hides what was inherited: that was None.
    """
    replacements: list[tuple[str, Any, str, Any]] = []
    for place, (owner, names) in before.items():
        now = vars(owner)
        replacements += [
            (f"{place}.{name}", owner, name, was)
            for name, was in names.items()
            if now.get(name) is not was and not name.startswith("_") and _is_function(was)
        ]
        if not isinstance(owner, ModuleType):
            hidden = (name for name in now if name not in names and _is_inherited(owner, name))
            replacements += [(f"{place}.{name}", owner, name, None) for name in hidden]
    return replacements


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)  # torch has classes that follow its settings


def _is_inherited(owner: Any, name: str) -> bool:
    return isinstance(owner, type) and not name.startswith("_") and any(hasattr(base, name) for base in owner.__bases__)


def put_back(before: Namespaces) -> None:
    """Restore the functions that were replaced."""
    for _, owner, name, was in replaced(before):
        if was is None:
            delattr(owner, name)
        else:
            setattr(owner, name, was)
