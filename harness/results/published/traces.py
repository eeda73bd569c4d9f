"""What in a results file tells of the machine that wrote it and of its user: paths, addresses, and names of hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

# Two names at least, as one alone (/tmp) tells nothing; a URL's second slash follows another and not a blank.
ABSOLUTE_PATH = re.compile(
    r"(?<![^\s\"'=(,:;\[])/[\w.+@~-]+(?:/[\w.+@~-]+)+|(?<!\w)[A-Za-z]:\\[^\s\"']+|\\\\[\w.-]+\\[^\s\"']+"
)
ADDRESS = re.compile(r"(?<=--fleet[ =])[^\s\"']+:\d+|(?<![\w.@-])(?:ray://[^\s\"']+|\d{1,3}(?:\.\d{1,3}){3}:\d+)")
MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}(?!\w)")
TRACES = {"path": ABSOLUTE_PATH, "address": ADDRESS, "mail address": MAIL}
KEPT_WHERE = re.compile(r" --out[= ](?:'[^']*'|\S+)")  # of the command: the folder of the run


def of(fields: Mapping[str, Any]) -> Iterator[str]:
    """Each trace in the texts of a record, and what it is, such as `the path /home/me/mine.py`."""
    for text in _texts(fields):
        for kind, pattern in TRACES.items():
            yield from (f"the {kind} {match[0]}" for match in pattern.finditer(text))
    if fields.get("record") == "gpu":
        if not re.fullmatch(r"host \d+", fields["host"]):
            yield f"the host {fields['host']}"
        if fields.get("uuid"):
            yield f"the serial {fields['uuid']}"


def without(fields: Mapping[str, Any], hosts: list[str]) -> dict[str, Any]:
    """A record without its traces: of a path its last name is left, of an address nothing, and hosts are numbered.

    `hosts` has the names of the hosts so far, in order of their numbers.
    """
    kept: dict[str, Any] = _changed(fields, _without_traces)
    if kept.get("record") == "run":
        kept["command"] = _without_traces(KEPT_WHERE.sub("", fields["command"]))
    if kept.get("record") == "gpu":
        if fields["host"] not in hosts:
            hosts.append(fields["host"])
        kept["host"] = f"host {hosts.index(fields['host'])}"
        kept.pop("uuid", None)
    return kept


def _without_traces(text: str) -> str:
    text = MAIL.sub("(address)", ADDRESS.sub("(address)", text))
    return ABSOLUTE_PATH.sub(lambda match: Path(match[0].replace("\\", "/")).name, text)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list) and not (value and isinstance(value[0], float | int)):
        for item in value:
            yield from _texts(item)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _changed(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    return value
