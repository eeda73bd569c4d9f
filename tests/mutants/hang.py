"""Never comes back."""

import threading

name = "hang"
requires = ("torch",)


def unsupported(case):
    return None


def prepare(inputs):
    return threading.Event().wait
