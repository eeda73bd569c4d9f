"""Packs a results file for publishing: samples rounded to 10 ns, traces of the machine removed, compressed.

Of an unfinished run in several processes the complete processes are published, as a run of so many processes.
"""

from __future__ import annotations

import bz2
import json
import os
from pathlib import Path
from typing import Any

from harness.results.file import Results, lines_of, load
from harness.results.published import traces

DIGITS = 2  # of a sample in microseconds


def complete_processes(results: Results) -> int:
    """How many of a run's first processes have measured every case and made the self-test after them."""
    tested = {record.process for record in results.selftests if record.when == "after"}
    for process in range(results.run.settings.processes):
        cases = {row.case for row in results.rows if row.process == process}
        if len(cases) < results.run.jobs or process not in tested:
            return process
    return results.run.settings.processes


def pack(results: Path, target: Path, processes: int | None = None) -> None:
    """Write a results file to `target`, which is replaced only if all goes well.

    With `processes`, only the rows of so many first processes are written. Nothing else is left out except what
    `traces` finds. Raises UsageError where the file is no complete results file.
    """
    lines = lines_of(results) if processes is None else _of_first(processes, lines_of(results))
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"new-{target.name}")
    hosts: list[str] = []
    new.write_bytes(bz2.compress("".join(f"{_published(line, hosts)}\n" for line in lines).encode()))
    try:
        load(new)
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)


def _of_first(processes: int, lines: list[str]) -> list[str]:
    """The lines of a run's first processes, changed into a finished run of so many processes.

    Its last line still has the time of all processes so far.
    """
    selected: list[str] = []
    for record in map(json.loads, (line for line in lines if line.endswith("\n"))):
        if record.get("process", 0) >= processes:
            continue
        if record["record"] == "run":
            record["settings"]["processes"] = processes
        elif record["record"] == "end":
            record["interrupted"] = False
        selected.append(json.dumps(record, ensure_ascii=False))
    return selected


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
