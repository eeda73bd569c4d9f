"""Triton reads this when it is imported: its kernels run in the interpreter here, but where tests ask for a GPU."""

import os


def pytest_configure(config):
    if config.getoption("markexpr") != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"
