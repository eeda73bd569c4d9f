"""Kills its process, as a kernel launcher with a wild pointer does."""

import os
import signal

name = "segfault"
requires = ("torch",)


def unsupported(case):
    return None


def prepare(inputs):
    return lambda: os.kill(os.getpid(), signal.SIGSEGV)
