"""Detects Triton kernels that run in Triton's interpreter, which gives right results thousands of times too slowly."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from harness.records.reasons import Reason

NEVER_TIMED = Reason("interpreted")


@contextmanager
def watch_interpreter() -> Generator[list[object]]:
    """Gather the kernels that run in the interpreter, on any thread, as long as the context lasts."""
    interpreted: list[object] = []
    if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
        yield interpreted
        return
    from triton.runtime import interpreter

    launcher: Any = interpreter.GridExecutor
    run = launcher.__call__

    def counted(executor: Any, *arguments: Any, **options: Any) -> Any:
        interpreted.append(executor)
        return run(executor, *arguments, **options)

    launcher.__call__ = counted
    try:
        yield interpreted
    finally:
        launcher.__call__ = run
