"""The version of the engine, by which a results file says whether its figures are those of today's code.

Raise it when a figure may change that timing, verification or the worker give; each adapter has a `version` of its own.
`python -m tests.versions` asks every commit that changes their code for a raise, or for a line in its message:

    Figures: unchanged, because ...
"""

from __future__ import annotations

from typing import NamedTuple


class Raise(NamedTuple):
    """A version, the date of its commit, and which figures it changed."""

    version: int
    date: str
    change: str


RAISES = (
    Raise(0, "2026-11-28", "the first to be counted; files of before are read as of this version"),
    Raise(1, "2026-11-28", "extra memory: what tensors asked for, kept since before it was prepared included"),
)
ENGINE_VERSION = RAISES[-1].version
COUNTED_SINCE = "2026-11-28T05:25:00+00:00"  # the check asks nothing of commits of before
