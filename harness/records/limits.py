"""The limits of a results file, which may come from anybody: twenty times the largest published one, and more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from harness.errors import UsageError

BYTES = 100_000_000  # unpacked
LINE_BYTES = 500_000
LINES = 200_000
CASES = 20_000
ELEMENTS = 1 << 42  # of a tensor of a case
PROCESSES = 1000  # of a run: each measures every case

Whole = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]  # whatever is computed of it, a float can hold it


def refuse_above(most: int, number: int, path: Path, of: str) -> None:
    """Raise UsageError where a file has more than `most` of something."""
    if number > most:
        raise UsageError(f"{path} has more than {most:,} {of}, which no run has; get it again from who measured it")
