"""Reads the properties of a device, and never sets any; only `read_facts` imports torch."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from harness.cases import DeviceKind
from harness.devices import nvml
from harness.errors import UnavailableError

CPU_INFO = Path("/proc/cpuinfo")
CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class DeviceFacts:
    """The properties of a device; `l2_bytes` of a CPU is its last-level cache, `sm_count` counts AMD's CUs too."""

    kind: DeviceKind
    name: str
    architecture: str
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    sm_count: int | None = None
    uuid: str | None = None  # finds the same card in NVML, whose numbering CUDA_VISIBLE_DEVICES does not change
    others: tuple[int, ...] = ()  # processes that hold a context on it, this one left out


def read_available() -> list[DeviceFacts]:
    """The facts of the devices of this machine: torch's current GPU, if it has one, and the CPU."""
    first = read_facts("auto")
    return [first] if first.kind == "cpu" else [first, read_facts("cpu")]


def read_facts(kind: Literal["auto", "cuda", "cpu"]) -> DeviceFacts:
    """Ask a device what it is: the CPU, torch's current GPU, or (auto) the GPU if there is one.

    Raises UnavailableError where "cuda" is asked for and torch finds no GPU.
    """
    if kind == "cpu":
        memory = psutil.virtual_memory().total
        return DeviceFacts("cpu", _cpu_name(CPU_INFO), platform.machine(), memory, _last_level(CPU_CACHES))
    import torch

    if not torch.cuda.is_available():
        if kind == "auto":
            return read_facts("cpu")
        raise UnavailableError("torch finds no GPU on this machine; run it where there is one, or use --device cpu")
    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = None if getattr(properties, "uuid", None) is None else str(properties.uuid)
    gpu = None if torch.version.hip else nvml.find(uuid)
    return DeviceFacts(
        kind="cuda",
        name=properties.name,
        architecture=(
            properties.gcnArchName.split(":")[0]  # gfx942:sramecc+:xnack-
            if torch.version.hip
            else f"sm_{properties.major}{properties.minor}"
        ),
        memory_bytes=properties.total_memory,
        l2_bytes=properties.L2_cache_size,
        sm_count=properties.multi_processor_count,
        uuid=uuid,
        others=tuple(number for number in gpu.process_ids() if number != os.getpid()) if gpu else (),
    )


def has_driver() -> bool:
    """Whether a driver of a GPU is here; without one torch, which takes seconds to import, finds no GPU."""
    if sys.platform != "linux" or Path("/dev/kfd").exists():
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _cpu_name(cpu_info: Path) -> str:
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model[1].strip() if model else platform.processor() or platform.machine()


def _last_level(caches: Path) -> int | None:
    """Bytes of the highest-level cache that one CPU core sees; None where the system does not report it."""
    sizes: dict[int, int] = {}
    for index in caches.glob("index*"):
        try:
            level, size = (index / "level").read_text().strip(), (index / "size").read_text().strip()
        except OSError:
            continue
        parts = re.fullmatch(r"(\d+)([KMG]?)", size)
        if level.isdecimal() and parts:
            sizes[int(level)] = int(parts[1]) * SIZE_UNITS[parts[2]]
    return sizes[max(sizes)] if sizes else None
