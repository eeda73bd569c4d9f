import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from harness.verify import output

os.dup2(2, 1)
was = output.read()
{fault}
assert output.read() != was
output.put(was)
print("from Python", flush=True)
os.write(1, b"from below\\n")
os.write(2, b"as an error\\n")
print(output.read()[2:] == was[2:], file=sys.stderr)
"""
FAULTS = ["os.close(1)", "os.close(2)", "sys.stdout.close()", "sys.stdout = sys.stderr = None", "sys.stderr.close()"]


@pytest.mark.parametrize("fault", [*FAULTS, "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)"])
def test_output_that_was_closed_arrives_again(fault):
    command = [sys.executable, "-c", PROGRAM.format(fault=fault)]
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.stderr.splitlines() == ["from Python", "from below", "as an error", "True"]


def test_output_that_is_lost_cannot_be_put_back():
    command = [sys.executable, "-c", PROGRAM.format(fault="os.close(1); os.close(2)")]
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode != 0, ran.stderr) == (True, "")
