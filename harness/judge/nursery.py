"""The process that runners are forked from: it imports torch once for all of them, and calls nothing."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback

import torch

from harness.judge import runner
from harness.judge.children import OWN_FOLDERS, end_with_parent
from harness.verify import precision
from harness.worker import discovery


def main() -> None:
    """Fork a runner for each request: its scratch folder, its end of the channel, its log."""
    end_with_parent()
    requests = socket.socket(fileno=int(sys.argv[1]))
    while True:
        scratch, descriptors, _, _ = socket.recv_fds(requests, 4096, 2)
        if not scratch:
            return
        told, tell = os.pipe()
        if (middle := os.fork()) == 0:
            if (pid := os.fork()) == 0:
                for descriptor in (requests.detach(), told, tell):
                    os.close(descriptor)
                begin(os.getppid(), scratch.decode(), *descriptors)
            os.write(tell, str(pid).encode())
            os._exit(0)
        os.waitpid(middle, 0)
        requests.send(os.read(told, 16))
        for descriptor in (told, tell, *descriptors):
            os.close(descriptor)


def begin(middle: int, scratch: str, end: int, log: int) -> None:
    """Be a runner: an orphan, with nothing open but standard streams, the channel and the memory."""
    while os.getppid() == middle:
        time.sleep(0.0001)
    os.setsid()
    os.chdir(scratch)
    os.environ.update(dict.fromkeys(OWN_FOLDERS, scratch))
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    try:
        runner.run(end)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    assert torch, (precision, discovery)
    main()
