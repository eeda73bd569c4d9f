"""A process that ends with the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading

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
