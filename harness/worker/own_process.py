"""What a worker sets up for its process: all of it ends with its parent, has a memory limit, and logs its output."""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
SWEEP_LIMIT_S = 5.0  # what is not dead by then waits for a device, or forks faster than it is killed


def usable_cores() -> int:
    """How many cores this process may use, of those of the host."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@contextmanager
def without_interrupts() -> Generator[None]:
    """Keep SIGINT from this thread, and from a process that it starts, which would print a traceback while it starts.

    One that comes meanwhile takes effect afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # as it starts, it takes every signal that is blocked here off the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C, which a terminal sends to all: the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def go_on_under_keeper(in_keeper: Callable[[], None]) -> None:
    """Fork: the child goes on, in a process group that has this process's number.

    This process stays behind as its keeper, and kills all that descends from it once the child or the parent has ended.
    Nothing escapes by a session of its own or by a second fork, because orphans become children of the keeper. Only
    on Linux; elsewhere this process goes on in a group of its own.
    """
    if not hasattr(os, "setpgid"):
        return
    group = os.getpgrp()
    os.setpgid(0, 0)
    if sys.platform != "linux":
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    ready, when_ready = os.pipe()
    keeper, child = os.getpid(), os.fork()
    if child == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(when_ready)
        os.read(ready, 1)
        os.close(ready)
        if os.getppid() != keeper:
            os._exit(1)
        return
    status = signal.SIGKILL.value
    try:
        signal.signal(signal.SIGTERM, lambda number, _: _end_like(number))
        os.setpgid(0, group)  # so that what stops the worker does not stop its keeper
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        in_keeper()
        os.close(ready)
        os.close(when_ready)
        status = _wait_for(child)
    finally:
        _end_like(status)


def _wait_for(child: int) -> int:
    """The status with which a child ends; meanwhile orphans are reaped."""
    while (ended := os.waitpid(-1, 0))[0] != child:
        pass
    return ended[1]


def _end_like(status: int) -> None:
    """Kill all descendants, and end as a process with this status of `wait` did."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_descendants()
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def _end_descendants() -> None:
    """Kill the children of this process until there are none: the orphans of those that die become its children."""
    until_s = time.monotonic() + SWEEP_LIMIT_S
    while time.monotonic() < until_s:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for child in psutil.Process().children():
            with suppress(psutil.Error):  # it has ended
                child.kill()
        time.sleep(0.002)


def end_with_parent(platform: str = sys.platform) -> None:
    """Make this process, which `multiprocessing` started, end as soon as its parent is gone, even if that was killed.

    On Linux the kernel does it, which also ends a process that hangs. Elsewhere a thread waits for the parent.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent.pid:  # the parent had ended before
            os._exit(1)
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def limit_memory() -> None:
    """Limit this process to four fifths of the free memory, or to its own lower limit; only on Linux.

    An allocation that is too large then fails and costs one row, and the machine stays usable.
    """
    if sys.platform != "linux":
        return
    import resource

    limit = psutil.Process().memory_info().vms + psutil.virtual_memory().available * 4 // 5
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if soft == resource.RLIM_INFINITY else min(soft, limit), hard))


def divert_output(log: Path) -> None:
    """Append what this process prints to a file, what its libraries print, and where it was when a signal killed it."""
    stream = log.open("ab", buffering=0)
    os.dup2(stream.fileno(), 1)
    os.dup2(stream.fileno(), 2)
    faulthandler.enable(2, all_threads=False)
