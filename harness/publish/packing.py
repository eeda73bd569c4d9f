"""Packs a results file for publishing: samples in units of the timer, traces of the machine removed, compressed.

Of an unfinished run a part is published: its complete processes, as a run of so many processes, or else the complete
cases of the first. Such a part can be unpacked and resumed where the unfinished run is not at hand.
"""

from __future__ import annotations

import bz2
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.analysis.joining import untested
from harness.cases import NormCase
from harness.publish import traces
from harness.records.file import Results, lines_of, load
from harness.records.packed_samples import PackedSamples
from harness.records.published_plan import PACKED_SUFFIX
from harness.run.plan import Job

CASE = TypeAdapter(NormCase)


@dataclass(frozen=True)
class Part:
    """The part of a run that can be published: its first `processes`, without the cases `left`, if any."""

    processes: int
    left: frozenset[NormCase] = frozenset()
    cases: int = 0

    @property
    def extent(self) -> tuple[int, int]:
        """The processes and cases; of two parts of a run the larger extent says more."""
        return self.processes, self.cases


def complete_part(results: Results, left: Iterable[Job]) -> Part | None:
    """The part of a run that is complete while the jobs `left` are still to do; None where nothing is.

    Where two processes of more are complete, only the first is published: the interval of two is 12.7 standard errors,
    so that they would tie what the first alone tells apart.

    A case without a self-test before and after it is not complete, however well it was measured. Of a run that was
    killed nothing is, before another sitting has ended it.
    """
    if results.end is None:
        return None
    left_in: dict[int, set[NormCase]] = {}
    for job in left:
        left_in.setdefault(job.process, set()).add(job.case)
    for row in chain(*untested(results).values()):
        left_in.setdefault(row.process, set()).add(row.case)
    measured = {row.process for row in results.rows}
    planned = range(results.run.settings.processes)
    whole = next((process for process in planned if process in left_in or process not in measured), len(planned))
    if whole == 2 and len(planned) > 2:
        whole = 1
    without = frozenset[NormCase]() if whole else frozenset(left_in.get(0, ()))
    cases = {row.case for row in results.rows if row.process == 0} - without
    return Part(max(whole, 1), without, len(cases)) if cases else None


def pack(results: Path, target: Path, part: Part | None = None) -> None:
    """Write a results file, or a part of it, to `target`, which is replaced only if all goes well.

    Nothing else is left out except what `traces` finds. Raises UsageError where the file is no complete results file.
    """
    lines = lines_of(results) if part is None else _of_part(part, lines_of(results, torn=True))
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"new-{target.name.removesuffix(PACKED_SUFFIX)}.bz2")  # which nobody takes for published
    hosts: list[str] = []
    new.write_bytes(bz2.compress("".join(f"{_published(line, hosts)}\n" for line in lines).encode()))
    try:
        load(new)
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)


def unpack(published: Path, target: Path, processes: int) -> None:
    """Write a published part of a run to `target` as an unfinished run of so many processes, to be resumed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name("unpacked.part")
    records = [json.loads(line) for line in lines_of(published)]
    for record in records:
        if record["record"] == "run":
            record["settings"]["processes"] = processes
        elif record["record"] == "end":
            record["interrupted"] = True
    new.write_text("".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records), encoding="utf-8")
    os.replace(new, target)


def _of_part(part: Part, lines: list[str]) -> list[str]:
    """The lines of a part of a run, changed into a finished run of so many processes.

    Its last line still has the time of all that was measured so far.
    """
    selected: list[str] = []
    for record in map(json.loads, lines):
        if record.get("process", 0) >= part.processes:
            continue
        if "case" in record and CASE.validate_python(record["case"]) in part.left:
            continue
        if record["record"] == "run":
            record["settings"]["processes"] = part.processes
        elif record["record"] == "end":
            record["interrupted"] = False
        selected.append(json.dumps(record, ensure_ascii=False))
    return selected


def _published(line: str, hosts: list[str]) -> str:
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
