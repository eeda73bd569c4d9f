"""The global state that a backward must leave as it was: torch's settings, and no new thread still running."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Setting:
    """A global setting of torch: how it is read and how it is put back."""

    read: Callable[[], Any]
    put: Callable[[Any], None]


def _put_deterministic(was: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(was[0], warn_only=was[1])


def _put_gradient_mode(was: bool) -> None:
    torch.set_grad_enabled(was)


SETTINGS: dict[str, Setting] = {
    "default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
    "float32 matmul precision": Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "deterministic algorithms": Setting(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        _put_deterministic,
    ),
    "gradient mode": Setting(torch.is_grad_enabled, _put_gradient_mode),
    "number of threads": Setting(torch.get_num_threads, torch.set_num_threads),
    "cuDNN benchmark mode": Setting(
        lambda: torch.backends.cudnn.benchmark, lambda was: setattr(torch.backends.cudnn, "benchmark", was)
    ),
    "cuDNN deterministic mode": Setting(
        lambda: torch.backends.cudnn.deterministic, lambda was: setattr(torch.backends.cudnn, "deterministic", was)
    ),
}
ON_GPU: dict[str, Setting] = {
    "current device": Setting(torch.cuda.current_device, torch.cuda.set_device),
    "current stream": Setting(torch.cuda.current_stream, torch.cuda.set_stream),
}


@dataclass(frozen=True)
class Surroundings:
    """The settings and threads of this process at one moment."""

    settings: dict[str, Any]
    threads: frozenset[threading.Thread]

    @classmethod
    def look(cls) -> Surroundings:
        """Read all of them."""
        return cls({name: setting.read() for name, setting in _all().items()}, frozenset(threading.enumerate()))

    def changed(self) -> list[str]:
        """Names of the settings that are no longer what they were."""
        return [name for name, setting in _all().items() if setting.read() != self.settings[name]]

    def restore(self) -> None:
        """Put back what was changed."""
        for name in self.changed():
            _all()[name].put(self.settings[name])

    def new_threads(self) -> list[str]:
        """Names of the threads that were not there before and are still alive."""
        return [thread.name for thread in threading.enumerate() if thread not in self.threads]


def _all() -> dict[str, Setting]:
    return SETTINGS | (ON_GPU if torch.cuda.is_available() else {})
