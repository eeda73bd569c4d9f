"""Honest, but prints wherever it can: through Python and past it, to output and to error."""

import os
import sys

from tests.mutants.maths import gradients

name = "noisy"
requires = ("torch",)
NOISE = "autotuning noise"

print(NOISE, "at import")


def unsupported(case):
    return None


def prepare(inputs):
    def backward():
        print(NOISE, "from Python", flush=True)
        print(NOISE, "from Python", file=sys.stderr, flush=True)
        os.write(1, f"{NOISE} from C\n".encode())
        return gradients(inputs)

    return backward
