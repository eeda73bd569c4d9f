"""Processes and threads that an implementation leaves at work, which slow what is timed beside them; on Linux alone."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from threading import get_native_id

PROC = Path("/proc")
LOOK_S = 0.2
LOOKS = 150  # a library's own processes import torch before they are idle, which takes long on a busy host
IDLE_LOOKS = 3  # in a row: work may come in bursts


def own_processes() -> frozenset[Path]:
    """The children of this process, and of its parent, which takes in the orphans as a worker's keeper; its threads.

    A thread of which Python does not know is among them, and the calling one is not.
    """
    this, keeper = PROC / str(os.getpid()), PROC / str(os.getppid())
    found = {*_children(this), *_children(keeper), *this.glob("task/*")}
    return frozenset(found - {this, this / "task" / str(get_native_id())})


def stay_busy(processes: Collection[Path]) -> dict[Path, str]:
    """Those that use a CPU, or whose descendants do, until the last look, with their commands; idle ones are let go."""
    used, idle = {process: _ticks(process) for process in processes}, dict.fromkeys(processes, 0)
    for _ in range(LOOKS):
        if not used:
            break
        time.sleep(LOOK_S)
        now = {process: _ticks(process) for process in used}
        idle = {process: 0 if now[process] > used[process] else idle[process] + 1 for process in used}
        used = {process: now[process] for process in used if idle[process] < IDLE_LOOKS}
    return {process: _command(process) for process in used}


def _children(process: Path) -> Iterator[Path]:
    for file in process.glob("task/*/children"):
        with suppress(OSError):  # the thread has ended
            yield from (PROC / child for child in file.read_text().split())


def _ticks(process: Path) -> int:
    """The time on a CPU of a process and of its descendants that run, or of a thread; of one that has ended, none."""
    with suppress(OSError):
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) + sum(map(_ticks, _children(process)))  # utime, stime
    return 0


def _command(process: Path) -> str:
    with suppress(OSError):
        if process.parent.name == "task":
            return f"thread {(process / 'comm').read_text().strip()}"
        return (process / "cmdline").read_text(errors="replace").replace("\0", " ").strip()[:60]
    return process.name
