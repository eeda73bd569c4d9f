"""Takes memory without end, and keeps it."""

import torch

name = "allocates"
requires = ("torch",)


def unsupported(case):
    return None


def prepare(inputs):
    kept = []

    def backward():
        while True:
            kept.append(torch.zeros(1 << 24))  # 64 MiB, which are not touched until they are read

    return backward
