"""The process that all others are forked from: it imports torch once for all of them, and calls nothing."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback

from harness.judge import reference, runner
from harness.judge.children import OWN_FOLDERS, end_with_parent
from harness.judge.messages import REQUESTS, channel_of
from harness.worker import discovery, rows

PROGRAMS = {"runner": runner.run, "reference": reference.run}
MOST_DESCRIPTORS = 8
IMPORTED_FOR_ALL = (discovery, rows)


def main() -> None:
    """Fork a process for each request: the program's name and the scratch folder, with descriptors."""
    end_with_parent()
    discovery.own()  # for all, so that a peer's process has imported what the judged one has
    requests = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, 4096, MOST_DESCRIPTORS)
        if not request:
            return
        told, tell = os.pipe()
        if (middle := os.fork()) == 0:
            middle = os.getpid()  # asked for here: it may have ended before its child asks
            if (pid := os.fork()) == 0:
                for descriptor in (requests.detach(), told, tell):
                    os.close(descriptor)
                program, scratch = request.decode().split(" ", 1)
                begin(middle, program, scratch, *descriptors)
            os.write(tell, str(pid).encode())
            os._exit(0)
        os.waitpid(middle, 0)
        requests.send(os.read(told, 16))
        for descriptor in (told, tell, *descriptors):
            os.close(descriptor)


def begin(middle: int, program: str, scratch: str, end: int, log: int, *memories: int) -> None:
    """Be a process of the judge: an orphan, with nothing open but standard streams, the channel and the memories."""
    while os.getppid() == middle:
        time.sleep(0.0001)
    end_with_parent()
    os.setsid()
    os.chdir(scratch)
    os.environ.update(dict.fromkeys(OWN_FOLDERS, scratch))
    null = os.open(os.devnull, os.O_RDONLY)  # a shared one would keep flags and locks for others
    for stream, opened in enumerate((null, log, log)):
        os.dup2(opened, stream)
    os.close(log)
    try:
        PROGRAMS[program](channel_of(socket.socket(fileno=end), REQUESTS), memories)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
