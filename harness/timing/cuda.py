"""A CUDA or ROCm device as the engine sees it: one stream, two events, a spin kernel and flush buffers."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Any

import torch

from harness.devices import nvml
from harness.devices.nvml import SensorReading
from harness.records.reasons import Reason
from harness.records.schema import Flush

# Addresses that a large output may land on. The caching allocator would hand out the same two in turn, and addresses
# differ in speed: drawing one of several at random averages over them instead of leaving them to chance.
OUTPUT_ADDRESSES = 5
CALIBRATION_CYCLES = 20_000_000
SHORTEST_SPIN_US = 1000.0  # of so many cycles; a spin that ends sooner does not spin


class CudaDevice:
    """One GPU; `output_like` is a tensor of the size of dx, for drawing output addresses; `flush_bytes` per buffer."""

    def __init__(self, flush_bytes: int, output_like: torch.Tensor) -> None:
        self._written = torch.ones(flush_bytes // 4, dtype=torch.float32, device="cuda")
        self._read = torch.ones_like(self._written)
        self._sink = torch.empty((), dtype=torch.float32, device="cuda")
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self._like = output_like
        self._decoys = [torch.empty_like(output_like) for _ in range(OUTPUT_ADDRESSES)]
        self._gpu = _watched_gpu()
        self._cycles_per_us = self._spin_rate()
        self._fill_us = self._second_time_us(lambda: self._written.fill_(1.0))

    def flush(self, mode: Flush) -> None:
        """Write one buffer, then read another, so that the cache holds clean lines and no write is pending."""
        if mode == "none":
            return
        self._written.fill_(1.0)
        if mode == "clean":
            torch.sum(self._read, 0, out=self._sink)

    def place_outputs(self, rng: random.Random) -> None:
        """Hold all but one of several blocks of dx's size: the allocator's best fit is then the one drawn here."""
        while len(self._decoys) < OUTPUT_ADDRESSES:
            self._decoys.append(torch.empty_like(self._like))
        del self._decoys[rng.randrange(OUTPUT_ADDRESSES)]

    def allocations(self) -> int:
        """Calls of cudaMalloc so far."""
        # Not `memory_stats`, which sorts 150 names: this is called twice a sample.
        return torch.cuda.memory_stats_as_nested_dict().get("num_device_alloc", 0)

    def hold(self, duration_us: float) -> None:
        """Keep the stream busy: by a spin kernel or, where there is none that spins, by filling a flush buffer.

        The device's clock may drift, so that this is a length, never a measure.
        """
        if self._cycles_per_us is not None:
            _spin(int(duration_us * self._cycles_per_us))
            return
        for _ in range(math.ceil(duration_us / self._fill_us)):
            self._written.fill_(1.0)

    def start(self) -> None:
        self._start.record()

    def end(self) -> None:
        self._end.record()

    def all_queued_before_start(self) -> bool:
        return not self._start.query()

    def elapsed_us(self) -> float:
        self._end.synchronize()
        return self._start.elapsed_time(self._end) * 1e3

    def fault(self) -> Reason | None:
        """None: the engine itself detects all faults of a sample without another kernel."""

    def read_sensors(self) -> SensorReading:
        """What NVML reads at this moment; empty on other devices than NVIDIA's."""
        return self._gpu.read() if self._gpu else SensorReading()

    def now_s(self) -> float:
        return time.monotonic()

    def _spin_rate(self) -> float | None:
        """Cycles a microsecond of the spin kernel; None where it does not spin, as on a ROCm build without one."""
        spun_us = self._second_time_us(lambda: _spin(CALIBRATION_CYCLES))
        return CALIBRATION_CYCLES / spun_us if spun_us >= SHORTEST_SPIN_US else None

    def _second_time_us(self, work: Callable[[], object]) -> float:
        """How long work takes once the first call has woken the clocks."""
        times_us: list[float] = []
        for _ in range(2):
            self.start()
            work()
            self.end()
            times_us.append(self.elapsed_us())
        return times_us[-1]


def _spin(cycles: int) -> None:
    torch.cuda._sleep(cycles)  # pyright: ignore[reportPrivateUsage]


def _watched_gpu() -> nvml.Gpu | None:
    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    return None if torch.version.hip else nvml.find(str(properties.uuid))
