"""Processes that an implementation leaves at work, which slow whatever is timed beside them; found on Linux alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LOOK_S = 0.2
LOOKS = 150  # a library's own processes import torch before they are idle, which takes long on a busy host


def own_processes() -> frozenset[int]:
    """The children of this process, and of its parent, which takes in the orphans as a worker's keeper."""
    return frozenset((*_children(os.getpid()), *_children(os.getppid()))) - {os.getpid()}


def stay_busy(processes: Iterable[int]) -> list[str]:
    """The commands of those that use a CPU, or whose descendants do, in every look; one idle look is enough."""
    used = {process: _ticks(process) for process in processes}
    for _ in range(LOOKS):
        if not used:
            break
        time.sleep(LOOK_S)
        used = {process: now for process, before in used.items() if (now := _ticks(process)) > before}
    return [_command(process) for process in used]


def _children(parent: int) -> Iterator[int]:
    for file in PROC.glob(f"{parent}/task/*/children"):
        with suppress(OSError):  # the thread has ended
            yield from map(int, file.read_text().split())


def _ticks(process: int) -> int:
    """The time on a CPU of a process and of its descendants that run; of one that has ended, none."""
    with suppress(OSError):
        fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) + sum(map(_ticks, _children(process)))  # utime, stime
    return 0


def _command(process: int) -> str:
    with suppress(OSError):
        return (PROC / str(process) / "cmdline").read_text(errors="replace").replace("\0", " ").strip()[:60]
    return str(process)
