"""Packs a results file for publishing: samples in units of the timer, traces of the machine removed, compressed.

Traces are paths, addresses, and the names of hosts and users.
"""

from __future__ import annotations

import bz2
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.records.file import lines_of, load
from harness.records.packed_samples import PackedSamples
from harness.records.published_plan import PACKED_SUFFIX
from harness.records.run_records import OUT_OPTION

# A path has at least two names, as one alone (/tmp) is no trace; it follows a blank or the like, unlike in a URL.
ABSOLUTE_PATH = re.compile(
    r"(?<![^\s\"'=(,:;\[])/[\w.+@~-]+(?:/[\w.+@~-]+)+|(?<!\w)[A-Za-z]:\\[^\s\"']+|\\\\[\w.-]+\\[^\s\"']+"
)
ADDRESS = re.compile(r"(?<=--fleet[ =])[^\s\"']+:\d+|(?<![\w.@-])(?:ray://[^\s\"']+|\d{1,3}(?:\.\d{1,3}){3}:\d+)")
MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}(?!\w)")
TRACES = {"path": ABSOLUTE_PATH, "address": ADDRESS, "mail address": MAIL}


def pack(results: Path, target: Path) -> None:
    """Write a results file to `target`, which is replaced only if all goes well.

    Nothing is left out except what `traces_of` finds. Raises UsageError where the file is no complete results file.
    """
    load(results)  # what it refuses is never packed
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
    record = _rounded(without_traces(json.loads(line), hosts))
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


def traces_of(fields: Mapping[str, Any]) -> Iterator[str]:
    """Each trace in the texts of a record, with its kind, such as `the path /home/me/mine.py`."""
    texts: list[str] = []
    _changed(fields, lambda text: texts.append(text) or text)
    for text in texts:
        for kind, pattern in TRACES.items():
            yield from (f"the {kind} {match[0]}" for match in pattern.finditer(text))
    if fields.get("record") == "gpu":
        if not re.fullmatch(r"host \d+", fields["host"]):
            yield f"the host {fields['host']}"
        if fields.get("uuid"):
            yield f"the serial {fields['uuid']}"


def without_traces(fields: Mapping[str, Any], hosts: list[str]) -> dict[str, Any]:
    """A record without its traces: a path is cut to its last name, an address is removed, and hosts are numbered.

    `hosts` has the names of the hosts so far, in order of their numbers; a new host is added.
    """
    cleaned: dict[str, Any] = _changed(fields, _cleaned)
    if cleaned.get("record") == "run":
        cleaned["command"] = _cleaned(OUT_OPTION.sub("", fields["command"]))
    if cleaned.get("record") == "gpu":
        if fields["host"] not in hosts:
            hosts.append(fields["host"])
        cleaned["host"] = f"host {hosts.index(fields['host'])}"
        cleaned.pop("uuid", None)
    return cleaned


def _cleaned(text: str) -> str:
    text = MAIL.sub("(address)", ADDRESS.sub("(address)", text))
    return ABSOLUTE_PATH.sub(lambda match: Path(match[0].replace("\\", "/")).name, text)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _changed(item, change) for name, item in value.items()}
    if isinstance(value, list) and not (value and isinstance(value[0], float | int)):
        return [_changed(item, change) for item in value]
    return value
