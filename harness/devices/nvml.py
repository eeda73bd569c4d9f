"""Reads clocks, power, temperature, throttling and other processes of one NVIDIA GPU by NVML. It never sets anything.

Without NVML, off NVIDIA, or where a container refuses a query, the answer is None or empty: nothing here raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# nvml.h, nvmlClocksEventReasons*: why clocks are below what was asked for. Idle and user settings are no throttling.
THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True)
class SensorReading:
    """One reading of a device; None for what it does not report. `throttled` has reasons, `processes` counts contexts.

    `host_load` is the share of the CPUs that other processes used since the last look.
    """

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttled: tuple[str, ...] = ()
    processes: int = 0
    host_load: float | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU; without a handle, because NVML does not know which of several it is, only the driver is known."""

    nvml: Any
    handle: Any | None

    def read(self) -> SensorReading:
        """Take a reading: it costs microseconds to a few milliseconds of host time."""
        power_mw = self._ask("nvmlDeviceGetPowerUsage")
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons") or 0
        return SensorReading(
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", self.nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", self.nvml.NVML_CLOCK_MEM),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=self._ask("nvmlDeviceGetTemperature", self.nvml.NVML_TEMPERATURE_GPU),
            throttled=tuple(reason for bit, reason in THROTTLE_REASONS.items() if bits & bit),
            processes=len(self.process_ids()),
        )

    def process_ids(self) -> list[int]:
        """The processes that hold a context on this GPU, by the ids of the namespace that the driver lives in."""
        return [process.pid for process in self._ask("nvmlDeviceGetComputeRunningProcesses") or ()]

    def driver(self) -> str | None:
        """The driver's version."""
        return tolerant(self.nvml.nvmlSystemGetDriverVersion)

    def power_limit_w(self) -> float | None:
        """The power limit that is enforced, in watts."""
        limit_mw = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        return None if limit_mw is None else limit_mw / 1000

    def _ask(self, query: str, *arguments: Any) -> Any:
        function = getattr(self.nvml, query, None)  # older bindings lack some
        return None if function is None or self.handle is None else tolerant(function, self.handle, *arguments)


def names() -> list[str]:
    """The names of this machine's GPUs."""
    if (here := find(None)) is None:
        return []
    handles = (
        tolerant(here.nvml.nvmlDeviceGetHandleByIndex, i) for i in range(tolerant(here.nvml.nvmlDeviceGetCount) or 0)
    )
    return [str(name) for each in handles if (name := tolerant(here.nvml.nvmlDeviceGetName, each))]


def find(uuid: str | None) -> Gpu | None:
    """The GPU of this UUID, or the only GPU: the readings of another one would mislead.

    None where there is no NVML.
    """
    try:
        import pynvml as nvml

        nvml.nvmlInit()  # for as long as the process lives: each block is looked at
    except Exception:  # not installed, or no driver
        return None
    handle = None
    if uuid is not None:
        handle = tolerant(nvml.nvmlDeviceGetHandleByUUID, f"GPU-{uuid.removeprefix('GPU-')}")
    if handle is None and tolerant(nvml.nvmlDeviceGetCount) == 1:
        handle = tolerant(nvml.nvmlDeviceGetHandleByIndex, 0)
    return Gpu(nvml, handle)


def tolerant(query: Any, *arguments: Any) -> Any:
    """The answer of an NVML query, or None: a container or an old driver refuses some of them."""
    try:
        return query(*arguments)
    except Exception:
        return None
