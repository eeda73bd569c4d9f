"""A CPU as the engine sees it: caches are evicted by walking a buffer, and the wall clock times the call."""

from __future__ import annotations

import random
import time

import torch

from harness.devices.nvml import SensorReading
from harness.records.reasons import Reason
from harness.records.schema import Flush
from harness.timing.conditions import HostLoad


class CpuDevice:
    """The host itself; nothing is asynchronous, so the queue proof always holds. `flush_bytes` per buffer."""

    def __init__(self, flush_bytes: int) -> None:
        self._written = torch.ones(flush_bytes // 4, dtype=torch.float32)
        self._read = torch.ones_like(self._written)
        self._start_ns = 0
        self._end_ns = 0
        self._load = HostLoad()

    def flush(self, mode: Flush) -> None:
        """Write one buffer, then read another."""
        if mode == "none":
            return
        self._written.fill_(1.0)
        if mode == "clean":
            self._read.sum()

    def place_outputs(self, rng: random.Random) -> None:
        """Leave addresses to the host's allocator: no pool of its blocks can be drawn from."""

    def allocations(self) -> int:
        """Always 0: the host's allocator keeps no count."""
        return 0

    def hold(self, duration_us: float) -> None:
        """Nothing to hold: the call itself is the work."""

    def start(self) -> None:
        self._start_ns = time.perf_counter_ns()

    def end(self) -> None:
        self._end_ns = time.perf_counter_ns()

    def all_queued_before_start(self) -> bool:
        """Whether host time is kept out; on a CPU host time is the time."""
        return True

    def elapsed_us(self) -> float:
        return (self._end_ns - self._start_ns) / 1e3

    def fault(self) -> Reason | None:
        """None: the engine itself detects all faults here."""

    def read_sensors(self) -> SensorReading:
        """The load of other processes since the last reading; a host reports no clocks."""
        return SensorReading(host_load=self._load.since_last_reading())

    def now_s(self) -> float:
        return time.monotonic()
