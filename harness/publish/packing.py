"""A results file becomes a published one: samples rounded to 10 ns, without traces of its machine, packed.

Of a run in several processes that is not finished the whole processes are published, as a run of so many.
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


def whole_processes(results: Results) -> int:
    """How many of a run's processes, from the first on, have measured each of its cases and were tested after them."""
    tested = {record.process for record in results.selftests if record.when == "after"}
    for process in range(results.run.settings.processes):
        cases = {row.case for row in results.rows if row.process == process}
        if len(cases) < results.run.jobs or process not in tested:
            return process
    return results.run.settings.processes


def pack(results: Path, target: Path, processes: int | None = None) -> None:
    """Write a results file as `target`, in place of what is there; that is kept where anything goes wrong.

    With `processes` it is what the first so many of them measured. Beside what they did not, and what `traces` finds,
    nothing is left out. Raises UsageError where the file is not a whole results file.
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
    """The lines of a run's first processes, as of a run that has no others and is finished.

    Its last line says how long the whole run took so far.
    """
    kept: list[str] = []
    for record in map(json.loads, (line for line in lines if line.endswith("\n"))):
        if record.get("process", 0) >= processes:
            continue
        if record["record"] == "run":
            record["settings"]["processes"] = processes
        elif record["record"] == "end":
            record["interrupted"] = False
        kept.append(json.dumps(record, ensure_ascii=False))
    return kept


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
