"""What a worker sets up for its own process: it ends with its parent, has a memory limit, and logs its output."""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h


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
    try:
        import resource

        meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return
    free = int(meminfo["MemAvailable"].split()[0]) * 1024
    limit = pages * resource.getpagesize() + free * 4 // 5
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if soft == resource.RLIM_INFINITY else min(soft, limit), hard))


def divert_output(log: Path) -> None:
    """Append what this process prints to a file, what its libraries print, and where it was when a signal killed it."""
    stream = log.open("ab", buffering=0)
    os.dup2(stream.fileno(), 1)
    os.dup2(stream.fileno(), 2)
    faulthandler.enable(2, all_threads=False)
