"""What libraries read when they are imported: but where tests ask for a GPU, Triton interprets, torch has one thread.

Threads that wait for each other on small tensors take the cores from the tests beside them.
"""

import os
import signal

import pytest


def pytest_configure(config):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests were started in the background
    if config.getoption("markexpr") != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"
        os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def _with_a_driver(monkeypatch):
    """Scripted workers have GPUs, which a command without a driver refuses before it starts one."""
    monkeypatch.setattr("harness.run.resolve.has_driver", lambda: True)


@pytest.fixture
def ranked_on_a_cpu(monkeypatch):
    """Cases on a CPU are ranked like others, where a scripted clock times them."""
    monkeypatch.setattr("harness.analysis.evidence.against_device", lambda case: None)
