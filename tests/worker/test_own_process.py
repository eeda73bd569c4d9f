"""A process ends with its parent, even one that is killed and even where it hangs."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

PROGRAM = textwrap.dedent("""
    import multiprocessing, os, sys, time
    from harness.worker.own_process import end_with_parent

    def hang(connection, platform):
        end_with_parent(platform)
        connection.send(os.getpid())
        time.sleep(3600)

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        context.Process(target=hang, args=(theirs, sys.argv[1])).start()
        print(ours.recv(), flush=True)
        time.sleep(3600)
""")


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("platform", ["linux", "another"])
def test_child_dies_with_its_parent(tmp_path, platform):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, program, platform]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    with parent:
        child = int(parent.stdout.readline())
        assert lives(child)
        parent.kill()
    try:
        while lives(child):  # until the limit of every test
            time.sleep(0.05)
    finally:
        if lives(child):
            os.kill(child, signal.SIGKILL)
