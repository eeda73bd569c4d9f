"""A finished results file becomes a published one: samples rounded to 10 ns, without traces of its machine, packed."""

from __future__ import annotations

import bz2
import json
import os
from pathlib import Path
from typing import Any

from harness.results.file import lines_of, load
from harness.results.published import traces

DIGITS = 2  # of a sample in microseconds


def pack(results: Path, target: Path) -> None:
    """Write a results file as `target`, in place of what is there; that is kept where anything goes wrong.

    Beside what `traces` finds nothing is left out. Raises UsageError where the file is not a whole results file.
    """
    lines = lines_of(results)
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"new-{target.name}")
    hosts: list[str] = []
    new.write_bytes(bz2.compress("".join(f"{_published(line, hosts)}\n" for line in lines).encode()))
    try:
        load(new)
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)


def _published(line: str, hosts: list[str]) -> str:
    record = traces.without(json.loads(line), hosts)
    _round_samples(record)
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _round_samples(value: Any) -> None:
    if isinstance(value, dict):
        if "samples_us" in value:
            value["samples_us"] = [us if isinstance(us, str) else round(us, DIGITS) for us in value["samples_us"]]
        for inner in value.values():
            _round_samples(inner)
