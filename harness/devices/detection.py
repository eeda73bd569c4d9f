"""Which device is here, what it says of itself, and the profile that fits it.

The decisions (`detect`, `choose`) are pure: they take `DeviceFacts`, so they are tested without a GPU. Only
`read_facts` imports torch, and nothing here ever sets anything on a device.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from harness.devices import nvml
from harness.devices.profiles import (
    CPU,
    GIB,
    HIDDEN_LAST_LEVEL_BYTES,
    KIB,
    MIB,
    PROFILES,
    UNKNOWN_CPU_CACHE_BYTES,
    DeviceFacts,
    DeviceProfile,
    known_names,
)
from harness.errors import UnavailableError, UsageError

CPU_INFO = Path("/proc/cpuinfo")
CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def detect(facts: DeviceFacts) -> DeviceProfile:
    """The profile of a device, its cache sizes raised to what it reports; a generic one where nothing matches.

    A generic profile has no datasheet bandwidth, so "% of datasheet" stays empty, and everything else works.
    """
    reported = facts.l2_bytes or 0
    if facts.kind == "cpu":
        cache = reported or UNKNOWN_CPU_CACHE_BYTES
        return replace(CPU, architecture=facts.architecture, l2_bytes=cache, last_level_bytes=cache)
    profile = next((profile for profile in PROFILES if profile.matches(facts)), None) or _generic(facts)
    # A datasheet can say less than the device (an H200 reports 60 MB of L2) and a device less than it has (MI300X).
    return replace(
        profile,
        l2_bytes=max(profile.l2_bytes, reported),
        last_level_bytes=max(profile.last_level_bytes, reported),
    )


def choose(asked: str, available: Sequence[DeviceFacts]) -> tuple[DeviceProfile, DeviceFacts]:
    """The device that `--device` asks for, out of those present: `auto` is the GPU if there is one, else the CPU.

    Raises UsageError for a name that is no device, UnavailableError for a device that is not the one here.
    """
    wanted = asked.strip().lower()
    present = [(detect(facts), facts) for facts in sorted(available, key=lambda facts: facts.kind != "cuda")]
    for profile, facts in present:
        if wanted in ("auto", profile.name, profile.family):
            return profile, facts
    names = known_names()
    if wanted not in names:
        here = (profile.name for profile, _ in present)
        raise UsageError(f"--device {asked}: no such device; choose among {_listed([*names, *here])}")
    gpu = next(((profile, facts) for profile, facts in present if facts.kind == "cuda"), None)
    if gpu is None:
        raise UnavailableError(
            f"--device {asked}: torch finds no GPU on this machine; run it where there is one, or use --device cpu"
        )
    profile, facts = gpu
    article = "an" if facts.name.startswith(("NVIDIA", "A", "I")) else "a"
    raise UnavailableError(
        f"--device {asked}: this machine has {article} {facts.name} ({profile.name}); "
        "run it there, or use --device auto"
    )


def refuse_shared(facts: DeviceFacts) -> None:
    """Raise UnavailableError where other processes hold a context on the device: they would disturb every figure."""
    if facts.others:
        them = ", ".join(map(str, facts.others))
        raise UnavailableError(
            f"other processes use this {facts.name} (process {them}) and would disturb every figure; "
            "end them, or measure beside them with --allow-others"
        )


def read_available() -> list[DeviceFacts]:
    """The facts of the devices of this machine: torch's current GPU, if it has one, and the CPU."""
    first = read_facts("auto")
    return [first] if first.kind == "cpu" else [first, read_facts("cpu")]


def read_facts(kind: Literal["auto", "cuda", "cpu"]) -> DeviceFacts:
    """Ask a device what it is: the CPU, torch's current GPU, or (auto) the GPU if there is one. Reads, never sets.

    Raises UnavailableError where "cuda" is asked for and torch finds no GPU.
    """
    if kind == "cpu":
        return DeviceFacts("cpu", _cpu_name(CPU_INFO), platform.machine(), _main_memory(), _last_level(CPU_CACHES))
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


def _generic(facts: DeviceFacts) -> DeviceProfile:
    slug = re.sub(r"[^a-z0-9]+", "-", facts.name.lower()).strip("-") or "cuda-unknown"
    if slug in known_names():  # what no profile matched must not answer to the name of one
        slug = f"{slug}-unknown"
    vendor = "AMD" if facts.architecture.startswith("gfx") else "NVIDIA"
    hidden = HIDDEN_LAST_LEVEL_BYTES.get(facts.architecture, 0)
    return DeviceProfile(slug, slug, facts.name, vendor, facts.architecture, None, 0, hidden)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _cpu_name(cpu_info: Path) -> str:
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def _main_memory() -> int | None:
    try:
        import psutil
    except ImportError:
        return None
    return psutil.virtual_memory().total


def _last_level(caches: Path) -> int:
    """Bytes of the highest-level cache that one CPU core sees."""
    sizes: dict[int, int] = {}
    for index in caches.glob("index*"):
        try:
            level, size = (index / "level").read_text().strip(), (index / "size").read_text().strip()
        except OSError:
            continue
        parts = re.fullmatch(r"(\d+)([KMG]?)", size)
        if level.isdecimal() and parts:
            sizes[int(level)] = int(parts[1]) * {"": 1, "K": KIB, "M": MIB, "G": GIB}[parts[2]]
    return sizes[max(sizes)] if sizes else UNKNOWN_CPU_CACHE_BYTES
