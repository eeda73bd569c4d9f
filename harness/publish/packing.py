"""Packs a results file for publishing: samples in units of the timer, traces of the machine removed, compressed."""

from __future__ import annotations

import bz2
import json
import os
from pathlib import Path
from typing import Any

from harness.publish import traces
from harness.records.file import lines_of, load
from harness.records.packed_samples import PackedSamples
from harness.records.published_plan import PACKED_SUFFIX


def pack(results: Path, target: Path) -> None:
    """Write a results file to `target`, which is replaced only if all goes well.

    Nothing is left out except what `traces` finds. Raises UsageError where the file is no complete results file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"new-{target.name.removesuffix(PACKED_SUFFIX)}.bz2")  # which nobody takes for published
    hosts: list[str] = []
    new.write_bytes(bz2.compress("".join(f"{_packed(line, hosts)}\n" for line in lines_of(results)).encode()))
    try:
        load(new)
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)


def _packed(line: str, hosts: list[str]) -> str:
    record = _rounded(traces.without(json.loads(line), hosts))
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _rounded(value: Any) -> Any:
    """A record with its samples packed and its powers in whole watts."""
    if not isinstance(value, dict):
        return value
    record = {name: _rounded(inner) for name, inner in value.items()}
    samples_us, power_w = record.get("samples_us"), record.get("power_w")
    if isinstance(samples_us, list) and all(isinstance(us, int | float) for us in samples_us):  # Infinity is a text
        record["samples_us"] = PackedSamples.of(samples_us).model_dump()
    if power_w:
        record["power_w"] = [round(watts) for watts in power_w]
    return record
