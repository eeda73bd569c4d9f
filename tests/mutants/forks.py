"""Forks a process that goes on as if it were the worker."""

import os

from tests.mutants.maths import gradients

name = "forks"
requires = ("torch",)


def unsupported(case):
    return None


def prepare(inputs):
    os.fork()
    return lambda: gradients(inputs)
