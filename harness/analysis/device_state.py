"""The state of the device during the run, and which GPU of a fleet measured how much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from harness.grouping import grouped
from harness.records.file import Results
from harness.records.run_records import GpuRecord
from harness.records.schema import ConditionsRecord

BUSY = 0.1  # a load by other processes that changes times on a CPU: a fifth of a core of two
STEADY = 0.98  # a clock that falls further below its highest has moved; times move with it


@dataclass(frozen=True)
class Reading:
    """The smallest and largest of one reading over the run, and the number of cases in which it fell by over 2 %."""

    smallest: float
    largest: float
    moved_cases: int

    @property
    def moved(self) -> bool:
        """Whether it fell further than STEADY, within a case or over the run."""
        return self.moved_cases > 0 or self.smallest < STEADY * self.largest


@dataclass(frozen=True)
class DeviceState:
    """The readings of all blocks, None where the device is silent, over `cases` cases.

    `throttled` counts, by reason, the cases and the blocks in which clocks were held back; `shared_cases` are those in
    which other processes were on the device, at most `other_processes` of them. `host_load` is the share of the CPUs
    that other processes used in half the blocks of the worst case, 0 where a GPU was timed.
    """

    cases: int
    sm_clock_mhz: Reading | None
    memory_clock_mhz: Reading | None
    power_w: Reading | None
    temperature_c: Reading | None
    throttled: dict[str, tuple[int, int]]
    shared_cases: int
    other_processes: int
    host_load: float


def device_state(records: Sequence[ConditionsRecord]) -> DeviceState:
    """The state over all records, each of which is one case in one process."""
    throttled = grouped((reason, record) for record in records for reason, blocks in record.throttled.items() if blocks)
    return DeviceState(
        cases=_cases(records),
        sm_clock_mhz=_reading([(record, record.sm_clock_mhz) for record in records]),
        memory_clock_mhz=_reading([(record, record.memory_clock_mhz) for record in records]),
        power_w=_reading([(record, record.power_w) for record in records]),
        temperature_c=_reading([(record, record.temperature_c) for record in records]),
        throttled={
            reason: (_cases(held), sum(len(record.throttled[reason]) for record in held))
            for reason, held in throttled.items()
        },
        shared_cases=_cases(record for record in records if record.other_processes),
        other_processes=max((record.other_processes for record in records), default=0),
        host_load=max((median(record.host_load) for record in records if record.host_load), default=0.0),
    )


def _reading(readings: Sequence[tuple[ConditionsRecord, Sequence[float]]]) -> Reading | None:
    values = [value for _, reading in readings for value in reading]
    if not values:
        return None
    moved = _cases(record for record, reading in readings if reading and min(reading) < STEADY * max(reading))
    return Reading(min(values), max(values), moved)


def _cases(records: Iterable[ConditionsRecord]) -> int:
    return len({record.case for record in records})


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
