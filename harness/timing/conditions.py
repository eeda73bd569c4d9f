"""The state of the device (clocks, power, heat) and of the host's CPUs, and the blocks that are void because of it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from harness.cases import NormCase
from harness.devices.nvml import SensorReading
from harness.grouping import grouped
from harness.records.reasons import Reason
from harness.records.schema import ConditionsRecord

# A power cap is a property of the card: on one that is always capped, voiding for it would leave nothing. It slows all
# implementations of a block alike, is recorded, and the report warns of it.
STEADY = frozenset({"power cap"})

PROC_STAT = Path("/proc/stat")
COUNTED_FIELDS = 8  # of a line (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal; guest is in user
IDLE_FIELDS = (3, 4)  # idle, iowait

Number = TypeVar("Number", int, float)


def void_cause(before: SensorReading, after: SensorReading) -> Reason | None:
    """Why the block between two readings is void: the device throttled at one of them; None where it did not."""
    reasons = [reason for reason in (*before.throttled, *after.throttled) if reason not in STEADY]
    return Reason("throttled", {"by": reasons[0]}) if reasons else None


def record(case: NormCase, group: str, process: int, readings: Sequence[SensorReading]) -> ConditionsRecord:
    """The readings of a case, one column for each quantity; a quantity with a missing reading is left out."""
    return ConditionsRecord(
        case=case,
        group=group,
        process=process,
        sm_clock_mhz=_column([reading.sm_clock_mhz for reading in readings]),
        memory_clock_mhz=_column([reading.memory_clock_mhz for reading in readings]),
        power_w=_column([reading.power_w for reading in readings]),
        temperature_c=_column([reading.temperature_c for reading in readings]),
        host_load=_column([reading.host_load for reading in readings]),
        throttled=grouped((reason, block) for block, each in enumerate(readings) for reason in each.throttled),
        # Minus this process. PIDs are not compared: in a container this process is listed under another one.
        other_processes=max((max(0, reading.processes - 1) for reading in readings), default=0),
    )


def _column(values: Sequence[Number | None]) -> list[Number]:
    numbers = [value for value in values if value is not None]
    return numbers if len(numbers) == len(values) else []


@dataclass(frozen=True)
class CpuTimes:
    """A reading of the clock, and the busy seconds so far of the CPUs and of this process."""

    at_s: float
    busy_s: float
    own_s: float
    cpus: int


class HostLoad:
    """The share of this process's CPUs that other processes use, from one reading to the next."""

    def __init__(self) -> None:
        self._last = read_cpu_times()

    def since_last_reading(self) -> float | None:
        """A number from 0 to 1; None where the system does not report it."""
        before, self._last = self._last, read_cpu_times()
        return None if before is None or self._last is None else share_of_others(before, self._last)


def share_of_others(before: CpuTimes, after: CpuTimes) -> float | None:
    """The share of the CPUs that other processes used between two readings, 0 to 1; None where no time passed."""
    available_s = after.cpus * (after.at_s - before.at_s)
    if available_s <= 0:
        return None
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return round(min(1.0, max(0.0, others_s / available_s)), 3)


def read_cpu_times() -> CpuTimes | None:
    """Read them now; None where the system does not report them, as anywhere but on Linux."""
    try:
        allowed = os.sched_getaffinity(0)
        busy_s = busy_seconds(PROC_STAT.read_text(encoding="ascii"), allowed)
    except (AttributeError, OSError, ValueError):
        return None
    return CpuTimes(time.monotonic(), busy_s, time.process_time(), len(allowed))


def busy_seconds(text: str, allowed: set[int]) -> float:
    """The seconds that these CPUs were busy since the machine started, from the text of /proc/stat."""
    names = {f"cpu{number}" for number in allowed}
    ticks = 0
    for name, *fields in (line.split() for line in text.splitlines() if line):
        if name in names:
            counts = [int(field) for field in fields[:COUNTED_FIELDS]]
            ticks += sum(counts) - sum(counts[place] for place in IDLE_FIELDS)
    return ticks / os.sysconf("SC_CLK_TCK")
