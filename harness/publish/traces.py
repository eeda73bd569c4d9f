"""Finds and removes traces of the machine and its user in a results file: paths, addresses and names of hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

# A path has at least two names, as one alone (/tmp) is no trace; it follows a blank or the like, unlike in a URL.
ABSOLUTE_PATH = re.compile(
    r"(?<![^\s\"'=(,:;\[])/[\w.+@~-]+(?:/[\w.+@~-]+)+|(?<!\w)[A-Za-z]:\\[^\s\"']+|\\\\[\w.-]+\\[^\s\"']+"
)
ADDRESS = re.compile(r"(?<=--fleet[ =])[^\s\"']+:\d+|(?<![\w.@-])(?:ray://[^\s\"']+|\d{1,3}(?:\.\d{1,3}){3}:\d+)")
MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}(?!\w)")
TRACES = {"path": ABSOLUTE_PATH, "address": ADDRESS, "mail address": MAIL}
OUT_OPTION = re.compile(r" --out[= ](?:'[^']*'|\S+)")  # in the command of a run


def of(fields: Mapping[str, Any]) -> Iterator[str]:
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


def without(fields: Mapping[str, Any], hosts: list[str]) -> dict[str, Any]:
    """A record without its traces: a path is cut to its last name, an address is removed, and hosts are numbered.

    `hosts` has the names of the hosts so far, in order of their numbers; a new host is added.
    """
    cleaned: dict[str, Any] = _changed(fields, _without_traces)
    if cleaned.get("record") == "run":
        cleaned["command"] = _without_traces(OUT_OPTION.sub("", fields["command"]))
    if cleaned.get("record") == "gpu":
        if fields["host"] not in hosts:
            hosts.append(fields["host"])
        cleaned["host"] = f"host {hosts.index(fields['host'])}"
        cleaned.pop("uuid", None)
    return cleaned


def _without_traces(text: str) -> str:
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
