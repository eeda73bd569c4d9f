"""Packs a results file for publishing: samples in units of the timer, traces of the machine removed, compressed.

Traces are paths, addresses, and the names of hosts and users.
"""

from __future__ import annotations

import bz2
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.records.file import lines_of, load
from harness.records.packed_samples import PackedSamples
from harness.records.published_plan import PACKED_SUFFIX
from harness.records.run_records import OUT_OPTION

# A path has at least two names, as one alone (/tmp) is no trace; it follows a blank or the like, unlike in a URL.
PATH = re.compile(r"(?<![^\s\"'=(,:;\[])/[\w.+@~-]+(?:/[\w.+@~-]+)+|(?<!\w)[A-Za-z]:\\[^\s\"']+|\\\\[\w.-]+\\[^\s\"']+")
ADDRESS = re.compile(r"(?<=--fleet[ =])[^\s\"']+:\d+|(?<![\w.@-])(?:ray://[^\s\"']+|\d{1,3}(?:\.\d{1,3}){3}:\d+)")
MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}(?!\w)")


def pack(results: Path, target: Path) -> None:
    """Write a results file to `target`, which is replaced only if all goes well.

    Nothing is left out but traces. Raises UsageError where the file is no complete results file.
    """
    load(results)  # what it refuses is never packed
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"new-{target.name.removesuffix(PACKED_SUFFIX)}.bz2")  # which nobody takes for published
    hosts: list[str] = []
    records = [_rounded(without_traces(json.loads(line), hosts)[0]) for line in lines_of(results)]
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records]
    new.write_bytes(bz2.compress("".join(f"{line}\n" for line in lines).encode()))
    try:
        load(new)
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)


def _rounded(value: Any) -> Any:
    """A record with its samples packed and its powers in whole watts."""
    if not isinstance(value, dict):
        return value
    record = {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(samples_us := record.get("samples_us"), list):
        record["samples_us"] = PackedSamples.of(samples_us).model_dump()
    if power_w := record.get("power_w"):
        record["power_w"] = [round(watts) for watts in power_w]
    return record


def without_traces(record: dict[str, Any], hosts: list[str]) -> tuple[dict[str, Any], list[str]]:
    """A record without its traces, and each of these with its kind, such as `the path /home/me/mine.py`.

    A path is cut to its last name, an address is removed, and hosts are numbered: `hosts` has their names so far.
    """
    traces: list[str] = []

    def clean(text: str) -> str:
        for kind, pattern in (("address", ADDRESS), ("mail address", MAIL), ("path", PATH)):
            traces.extend(f"the {kind} {match[0]}" for match in pattern.finditer(text))
            text = pattern.sub(_last_name if pattern is PATH else "(address)", text)
        return text

    cleaned: dict[str, Any] = _changed(record, clean)
    if record["record"] == "run":
        cleaned["command"] = OUT_OPTION.sub("", cleaned["command"])
    if record["record"] == "gpu":
        host, uuid = record["host"], cleaned.pop("uuid", None)
        traces += [f"the host {host}"] * (not re.fullmatch(r"host \d+", host)) + [f"the serial {uuid}"] * bool(uuid)
        hosts += [host] * (host not in hosts)
        cleaned["host"] = f"host {hosts.index(host)}"
    return cleaned, traces


def _last_name(path: re.Match[str]) -> str:
    return Path(path[0].replace("\\", "/")).name


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _changed(item, change) for name, item in value.items()}
    if isinstance(value, list) and not (value and isinstance(value[0], float | int)):
        return [_changed(item, change) for item in value]
    return value
