"""An implementation with nothing wrong, next to which the others are tried."""

from tests.mutants.maths import honest

name = "honest"
requires = ("torch",)
prepare = honest


def unsupported(case):
    return None
