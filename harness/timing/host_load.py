"""The load of other processes on the CPUs that this process may use; times on busy CPUs are worth nothing."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC_STAT = Path("/proc/stat")
COUNTED_FIELDS = 8  # of a line (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal; guest is in user
IDLE_FIELDS = (3, 4)  # idle, iowait


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
