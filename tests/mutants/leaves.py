"""Ends its process from within, without a word and without the interpreter's consent."""

import os

name = "leaves"
requires = ("torch",)


def unsupported(case):
    return None


def prepare(inputs):
    os._exit(9)
