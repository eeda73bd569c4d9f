"""The state of a process that all implementations share and no backward may change: settings, functions, threads."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, setitem
from pathlib import Path
from traceback import walk_stack
from types import CodeType, ModuleType
from typing import Any, Self

import torch

# A library starts these threads once in a process, for itself: the implementation that happens to be tried then has not
# left them at work.
HOUSEKEEPERS = (
    "/tqdm/_monitor.py",  # keeps bars of progress alive
    "/torch/_inductor/compile_worker/timer.py",  # ends the processes that compile, when nothing is to be compiled
)
# What libraries set as they are loaded.
WARNINGS, ENVIRONMENT, RANDOM = "Python's filters of warnings", "the environment", "the state of random numbers"
CUDNN = torch.backends.cudnn
# Where the precision of float32 is set: from the general to the special, which follows it where it is not set.
PRECISIONS = ("", ".cuda.matmul", ".cudnn", ".cudnn.conv", ".cudnn.rnn", ".mkldnn.matmul")


@dataclass(frozen=True)
class Setting:
    """A global setting: how it is read, as something to compare, and how it is restored."""

    read: Callable[[], Any]
    restore: Callable[[Any], object]


def _attribute(owner: Any, name: str) -> Setting:
    return Setting(lambda: getattr(owner, name), lambda was: setattr(owner, name, was))


def _older_precision() -> tuple[str, bool] | None:
    """As torch's older way sets it; None where the newer one contradicts it."""
    with suppress(RuntimeError):
        return torch.get_float32_matmul_precision(), CUDNN.allow_tf32
    return None


def _signal_handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _restore_signal_handlers(was: dict[int, Any]) -> None:
    for number, handler in _signal_handlers().items():
        if handler != was[number] and was[number] is not None:  # None: not one of Python's
            signal.signal(number, was[number])


def read_output() -> tuple[Any, ...]:
    """Standard output and error: the two streams, whether each is closed, and which files they lead to."""
    streams = [(stream, stream is None or stream.closed) for stream in (sys.stdout, sys.stderr)]
    return (*streams, *(_opened(descriptor) for descriptor in (1, 2)))


def restore_output(was: tuple[Any, ...]) -> None:
    """Reopen what was closed. Both lead to one file in a worker: where one of the two is left, the other is mended."""
    for descriptor, file in ((1, was[2]), (2, was[3])):
        if _opened(descriptor) != file == _opened(3 - descriptor):
            os.dup2(3 - descriptor, descriptor)
    for name, descriptor, (stream, was_closed) in (("stdout", 1, was[0]), ("stderr", 2, was[1])):
        closed_since = stream is not None and stream.closed and not was_closed
        setattr(sys, name, open(descriptor, "w", closefd=False) if closed_since else stream)  # noqa: SIM115


def _opened(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


SETTINGS: dict[str, Setting] = {
    "torch's default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": Setting(
        torch.get_default_device, lambda was: torch.set_default_device(None if was.type == "cpu" else was)
    ),
    "torch's float32 precision": Setting(
        _older_precision,
        lambda was: was and (torch.set_float32_matmul_precision(was[0]), setattr(CUDNN, "allow_tf32", was[1])),
    ),
    **{
        f"torch.backends{of}.fp32_precision": _attribute(attrgetter(f"backends{of}")(torch), "fp32_precision")
        for of in PRECISIONS
    },
    "torch's autocast": Setting(
        lambda: [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")],
        lambda was: [torch.set_autocast_enabled(*each) for each in zip(("cpu", "cuda"), was, strict=True)],
    ),
    "torch's detection of anomalies": Setting(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "the flushing of subnormal numbers": Setting(lambda: sys.float_info.min / 2 == 0, torch.set_flush_denormal),
    RANDOM: Setting(
        lambda: (random.getstate(), torch.get_rng_state().tolist()),
        lambda was: (random.setstate(was[0]), torch.set_rng_state(torch.ByteTensor(was[1]))),
    ),
    "torch's deterministic algorithms": Setting(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "torch's gradient mode": Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's number of threads": Setting(torch.get_num_threads, torch.set_num_threads),
    "torch's cuDNN benchmark mode": _attribute(CUDNN, "benchmark"),
    "torch's cuDNN deterministic mode": _attribute(CUDNN, "deterministic"),
    "the working directory": Setting(Path.cwd, os.chdir),
    WARNINGS: Setting(lambda: list(warnings.filters), lambda was: setitem(vars(warnings)["filters"], slice(None), was)),
    "Python's garbage collection": Setting(gc.isenabled, lambda was: gc.enable() if was else gc.disable()),
    "handlers of signals": Setting(_signal_handlers, _restore_signal_handlers),
    "the standard output": Setting(read_output, restore_output),
    ENVIRONMENT: Setting(lambda: dict(os.environ), lambda was: (os.environ.clear(), os.environ.update(was))),
}
if hasattr(signal, "setitimer"):
    SETTINGS["the timer of signals"] = Setting(
        lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        lambda was: was or signal.setitimer(signal.ITIMER_REAL, 0),  # a run sets none
    )
if sys.platform == "linux":
    import resource

    for name, limit in vars(resource).items():
        if name.startswith("RLIMIT_"):
            SETTINGS[name] = Setting(partial(resource.getrlimit, limit), partial(resource.setrlimit, limit))
    SETTINGS["the CPUs of this process"] = Setting(partial(os.sched_getaffinity, 0), partial(os.sched_setaffinity, 0))
ON_GPU: dict[str, Setting] = {
    "torch's current device": Setting(torch.cuda.current_device, torch.cuda.set_device),
    "torch's current stream": Setting(torch.cuda.current_stream, torch.cuda.set_stream),
    "the state of the GPU's random numbers": Setting(
        lambda: torch.cuda.get_rng_state().tolist(), lambda was: torch.cuda.set_rng_state(torch.ByteTensor(was))
    ),
}

Namespaces = Mapping[str, tuple[Any, Mapping[str, Any]]]


def _settings() -> dict[str, Setting]:
    """All settings that can be read here; those of a GPU once there is a context on it."""
    return SETTINGS | (ON_GPU if torch.cuda.is_initialized() else {})


def _functions() -> Namespaces:
    """The namespaces whose functions others rely on, by name: each with what is in it now."""
    shared = {"torch": torch, "torch.nn.functional": torch.nn.functional, "torch.cuda": torch.cuda, "time": time}
    shared |= {"torch.Tensor": torch.Tensor, "torch.cuda.Event": torch.cuda.Event, "torch.ops.aten": torch.ops.aten}
    shared |= {name: module for name, module in sys.modules.items() if name.startswith("harness.")}
    return {name: (owner, dict(vars(owner))) for name, owner in shared.items()}


def _replaced(before: Namespaces) -> list[tuple[str, Any, str, Any]]:
    """Public functions that were replaced: the full name, its owner, its name there, and the original.

    What is added is no replacement, but in a class, where it hides what was inherited: that was None.
    """
    replacements: list[tuple[str, Any, str, Any]] = []
    for place, (owner, names) in before.items():
        now = vars(owner)
        replacements += [
            (f"{place}.{name}", owner, name, was)
            for name, was in names.items()
            if now.get(name) is not was and not name.startswith("_")
            # A function: torch has classes that follow its settings.
            if callable(was) and not isinstance(was, type)
        ]
        if not isinstance(owner, ModuleType):
            hidden = (name for name in now if name not in names and _is_inherited(owner, name))
            replacements += [(f"{place}.{name}", owner, name, None) for name in hidden]
    return replacements


def _is_inherited(owner: Any, name: str) -> bool:
    return isinstance(owner, type) and not name.startswith("_") and any(hasattr(base, name) for base in owner.__bases__)


@dataclass(frozen=True)
class ProcessState:
    """The settings, functions and threads of this process at one moment."""

    settings: dict[str, Any]
    functions: Namespaces
    threads: frozenset[threading.Thread]

    @classmethod
    def snapshot(cls) -> ProcessState:
        """Read all of them."""
        settings = {name: setting.read() for name, setting in _settings().items()}
        return cls(settings, _functions(), frozenset(threading.enumerate()))

    def with_environment_of_now(self) -> Self:
        """A copy that accepts the present environment."""
        return replace(self, settings=self.settings | {ENVIRONMENT: dict(os.environ)})

    def changed(self) -> list[str]:
        """The names of the settings and functions that have changed."""
        return [*self._settings_changed(), *(name for name, *_ in _replaced(self.functions))]

    def changed_by_an_import(self) -> list[str]:
        """The same without what libraries set at import."""
        return [name for name in self.changed() if name not in (WARNINGS, ENVIRONMENT, RANDOM)]

    def restore(self) -> None:
        """Undo the changes, as far as possible."""
        settings = _settings()
        for name in self._settings_changed():
            settings[name].restore(self.settings[name])
        for _, owner, name, was in _replaced(self.functions):
            if was is None:
                delattr(owner, name)
            else:
                setattr(owner, name, was)

    def left_behind(self) -> list[str]:
        """After `restore`: the names of settings that could not be restored, and of threads that still run."""
        return [name for name in self._settings_changed() if name != ENVIRONMENT] + self.new_threads()

    def new_threads(self) -> list[str]:
        """Names of the threads that were not there before and are still alive, but for housekeeping of libraries."""
        new = (thread for thread in threading.enumerate() if thread not in self.threads)
        return [thread.name for thread in new if not _is_housekeeping(thread)]

    def _settings_changed(self) -> Iterator[str]:
        """Read one after the other, as putting one back may change those that follow."""
        settings = _settings()
        return (name for name, was in self.settings.items() if name in settings and settings[name].read() != was)


def _is_housekeeping(thread: threading.Thread) -> bool:
    """Whether what a thread runs is defined in a file of HOUSEKEEPERS, whatever the thread is called."""
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
    files = [at.f_code.co_filename for at, _ in walk_stack(frame)] if frame else []
    outermost = next((file for file in reversed(files) if file != threading.__file__), "")
    return outermost.endswith(HOUSEKEEPERS)


def at_work_in(function: Callable[..., object]) -> list[str]:
    """Names of the threads that are now executing code of the file that defines a function."""
    code: CodeType | None = getattr(function, "__code__", None)
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    others = (thread for thread in threading.enumerate() if thread is not threading.current_thread())
    stacks = {thread.name: walk_stack(frames.get(thread.ident or 0)) for thread in others}
    files = {name: {frame.f_code.co_filename for frame, _ in stack} for name, stack in stacks.items()}
    return [name for name in files if code is not None and code.co_filename in files[name]]
