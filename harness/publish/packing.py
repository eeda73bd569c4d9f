"""A finished results file becomes a published one: samples rounded to 10 ns, packed by bzip2."""

from __future__ import annotations

import bz2
import json
import os
from pathlib import Path
from typing import Any

from harness.results.file import load

DIGITS = 2  # of a sample in microseconds


def pack(results: Path, target: Path) -> None:
    """Write a results file as `target`, in place of what is there; that is kept where anything goes wrong.

    Nothing is left out. Raises UsageError where the file is not a whole results file.
    """
    lines = results.read_text(encoding="utf-8").splitlines()
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"new-{target.name}")
    new.write_bytes(bz2.compress("".join(f"{_rounded(line)}\n" for line in lines).encode()))
    try:
        load(new)
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)


def _rounded(line: str) -> str:
    record = json.loads(line)
    _round_samples(record)
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _round_samples(value: Any) -> None:
    if isinstance(value, dict):
        if "samples_us" in value:
            value["samples_us"] = [round(sample, DIGITS) for sample in value["samples_us"]]
        for inner in value.values():
            _round_samples(inner)
