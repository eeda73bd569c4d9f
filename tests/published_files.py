"""The published files of an H200 by name, each loaded once for all tests of a process."""

from functools import cache
from pathlib import Path

from harness.analysis.comparison import compare
from harness.records import file

PUBLISHED = Path(__file__).parent.parent / "results/h200"


@cache
def load(name):
    return file.load(PUBLISHED / f"{name}.jsonl.bz2")


@cache
def compared(name):
    return compare(load(name))
