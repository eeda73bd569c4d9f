"""Which GPU measured how much, in a run that was spread over several."""

from __future__ import annotations

from dataclasses import dataclass

from harness.records.file import Results
from harness.records.run_records import GpuRecord


@dataclass(frozen=True)
class GpuUse:
    """A GPU of a fleet, and how many cases it measured: one in two processes counts twice."""

    gpu: GpuRecord
    measured: int


def gpu_uses(results: Results) -> tuple[GpuUse, ...]:
    """The GPUs that measured, in the order of their numbers; none where the run was not spread."""
    measured = {(row.gpu, row.process, row.case) for row in results.rows}
    uses = (GpuUse(gpu, sum(number == gpu.number for number, *_ in measured)) for gpu in results.gpus)
    return tuple(use for use in sorted(uses, key=lambda use: use.gpu.number) if use.measured)
