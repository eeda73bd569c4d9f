"""Checks the process state that a backward must not change: settings, functions of shared modules, and threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from traceback import walk_stack
from types import CodeType
from typing import Any, Self

from harness.verify import global_state
from harness.verify.global_state import ENVIRONMENT, Namespaces

# A library starts these threads once in a process, for itself: the implementation that happens to be tried then has not
# left them at work.
HOUSEKEEPERS = (
    "/tqdm/_monitor.py",  # keeps bars of progress alive
    "/torch/_inductor/compile_worker/timer.py",  # ends the processes that compile, when nothing is to be compiled
)


@dataclass(frozen=True)
class Surroundings:
    """The settings, functions and threads of this process at one moment."""

    settings: dict[str, Any]
    environment: dict[str, str]
    functions: Namespaces
    threads: frozenset[threading.Thread]

    @classmethod
    def snapshot(cls) -> Surroundings:
        """Read all of them."""
        settings = {name: setting.read() for name, setting in global_state.settings().items()}
        threads = frozenset(threading.enumerate())
        return cls(settings, ENVIRONMENT.read(), global_state.functions(), threads)

    def with_environment_of_now(self) -> Self:
        """A copy that accepts the present environment, which a library may set as it is loaded."""
        return replace(self, environment=ENVIRONMENT.read())

    def changed(self) -> list[str]:
        """The names of the settings and functions that have changed."""
        environment = ["the environment"] if ENVIRONMENT.read() != self.environment else []
        return self._settings_changed() + environment + [name for name, *_ in global_state.replaced(self.functions)]

    def changed_by_an_import(self) -> list[str]:
        """The same without what libraries set at import: the environment and filters of warnings."""
        return [name for name in self.with_environment_of_now().changed() if name != global_state.WARNINGS]

    def restore(self) -> None:
        """Undo the changes, as far as possible."""
        settings = global_state.settings()
        for name in self._settings_changed():
            settings[name].put(self.settings[name])
        if ENVIRONMENT.read() != self.environment:
            ENVIRONMENT.put(self.environment)
        global_state.put_back(self.functions)

    def left_behind(self) -> list[str]:
        """After `restore`: the names of settings that could not be restored, and of threads that still run."""
        return self._settings_changed() + self.new_threads()

    def new_threads(self) -> list[str]:
        """Names of the threads that were not there before and are still alive, but for housekeeping of libraries."""
        new = (thread for thread in threading.enumerate() if thread not in self.threads)
        return [thread.name for thread in new if not _is_housekeeping(thread)]

    def _settings_changed(self) -> list[str]:
        settings = global_state.settings()
        return [name for name, was in self.settings.items() if name in settings and settings[name].read() != was]


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
