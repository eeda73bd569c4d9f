"""What a worker does to its own process first: it ends with its parent, and takes no more memory than there is."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent(platform: str = sys.platform) -> None:
    """End this process, which `multiprocessing` started, as soon as its parent is gone, even one that was killed.

    Linux does that itself, and so also ends a process that hangs. Elsewhere a thread waits for the parent.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent.pid:  # it ended before that was set
            os._exit(1)
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def limit_memory() -> None:
    """Let an allocation fail that the machine has no room for: it costs one row, and the machine stays usable.

    This process may take four fifths of what is free, or less where it was started under a lower limit. Only Linux says
    what is free.
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
    """Append what this process prints, and what its libraries print, to a file."""
    stream = log.open("ab", buffering=0)
    os.dup2(stream.fileno(), 1)
    os.dup2(stream.fileno(), 2)
