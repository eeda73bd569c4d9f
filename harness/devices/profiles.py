"""Device profiles: what a datasheet says of a device, how to recognise it, how much a flush must evict; `--device`.

docs/devices.md has the sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.cases import DeviceKind
from harness.devices import nvml
from harness.devices.facts import DeviceFacts
from harness.errors import UnavailableError, UsageError

MIB = 1 << 20
GIB = 1 << 30

LEAST_UNKNOWN_FLUSH_BYTES = 512 * MIB  # of a GPU without a profile, which may not report its last level
LEAST_CPU_FLUSH_BYTES = 64 * MIB
FLUSH_FACTOR = 4  # replacement is not exact LRU: one cache's worth of other lines does not evict everything
UNKNOWN_CPU_CACHE_BYTES = 32 * MIB

# ROCm reports one die's L2 and no Infinity Cache (ROCm issue 4203), so an unknown card of these must still flush it.
HIDDEN_LAST_LEVEL_BYTES = {"gfx942": 256 * MIB, "gfx950": 256 * MIB}


@dataclass(frozen=True)
class DeviceProfile:
    """What a datasheet says of a device, and how to recognise the device.

    `pattern` must match the whole reported name. `least_memory_bytes` and `sm_count` tell apart devices of one name,
    such as a part of a partitioned GPU. `family` names several variants together: `--device h100`.
    """

    name: str
    family: str
    title: str
    architecture: str
    datasheet_gbps: float | None
    l2_bytes: int
    last_level_bytes: int
    kind: DeviceKind = "cuda"
    pattern: str | None = None
    least_memory_bytes: int = 0
    sm_count: int | None = None

    @property
    def flush_bytes(self) -> int:
        """Bytes to write, and as many others to read, to evict all lines of the last sample from the caches."""
        least = LEAST_CPU_FLUSH_BYTES
        if self.kind == "cuda":
            least = LEAST_UNKNOWN_FLUSH_BYTES if self.pattern is None else 0
        return max(least, FLUSH_FACTOR * self.last_level_bytes)

    def matches(self, facts: DeviceFacts) -> bool:
        """Whether these are the facts of a whole device of this profile."""
        if self.kind != facts.kind or self.pattern is None or self.architecture != facts.architecture:
            return False
        if facts.memory_bytes is not None and facts.memory_bytes < self.least_memory_bytes:
            return False
        if self.sm_count and facts.sm_count and self.sm_count != facts.sm_count:
            return False
        return re.fullmatch(self.pattern, facts.name) is not None


def _nvidia(
    name: str, family: str, title: str, architecture: str, gbps: float, l2_mib: float, pattern: str, gib: int = 0
) -> DeviceProfile:
    l2 = int(l2_mib * MIB)
    whole = rf"(NVIDIA )?({pattern})"  # drivers before 470 leave the vendor out
    return DeviceProfile(name, family, title, architecture, gbps, l2, l2, pattern=whole, least_memory_bytes=gib * GIB)


def _instinct(model: str, architecture: str, gbps: float, compute_units: int) -> DeviceProfile:
    return DeviceProfile(
        name=model.lower(),
        family=model.lower(),
        title=f"AMD Instinct {model}",
        architecture=architecture,
        datasheet_gbps=gbps,
        l2_bytes=32 * MIB,  # 4 MiB in each of 8 dies
        last_level_bytes=HIDDEN_LAST_LEVEL_BYTES[architecture],
        pattern=rf"(AMD )?Instinct {model}([ _-].*)?",  # such as `AMD Instinct MI300X VF`
        sm_count=compute_units,  # a partition keeps the name, not the compute units
    )


CPU = DeviceProfile("cpu", "cpu", "CPU", "", None, 0, UNKNOWN_CPU_CACHE_BYTES, kind="cpu")

PROFILES: tuple[DeviceProfile, ...] = (
    _nvidia("b200", "b200", "NVIDIA B200 SXM", "sm_100", 7700, 126.5, r"B200"),
    _nvidia("gb200", "gb200", "NVIDIA GB200", "sm_100", 8000, 126.5, r"GB200"),
    _nvidia("b300", "b300", "NVIDIA B300 SXM", "sm_103", 7700, 126.5, r"B300( SXM6( AC)?)?"),
    # A DGX Station's GB300 has 252 GB and less bandwidth.
    _nvidia("gb300", "gb300", "NVIDIA GB300", "sm_103", 8000, 126.5, r"GB300", gib=256),
    _nvidia("h200", "h200", "NVIDIA H200 SXM or NVL", "sm_90", 4800, 50, r"H200( NVL)?"),
    _nvidia("h100-sxm", "h100", "NVIDIA H100 SXM 80 GB", "sm_90", 3350, 50, r"H100 80GB HBM3"),
    _nvidia("h100-pcie", "h100", "NVIDIA H100 PCIe 80 GB", "sm_90", 2000, 50, r"H100 PCIe"),
    _nvidia("h100-nvl", "h100", "NVIDIA H100 NVL 94 GB", "sm_90", 3900, 50, r"H100 NVL"),
    _nvidia("a100-40gb", "a100", "NVIDIA A100 40 GB, SXM or PCIe", "sm_80", 1555, 40, r"A100-(SXM4|PCIE)-40GB"),
    _nvidia("a100-80gb-pcie", "a100", "NVIDIA A100 80 GB PCIe", "sm_80", 1935, 40, r"A100 80GB PCIe|A100-PCIE-80GB"),
    _nvidia("a100-80gb-sxm", "a100", "NVIDIA A100 80 GB SXM", "sm_80", 2039, 40, r"A100-SXM4-80GB"),
    _nvidia("l40s", "l40s", "NVIDIA L40S", "sm_89", 864, 96, r"L40S"),
    _nvidia("rtx5090", "rtx5090", "NVIDIA GeForce RTX 5090", "sm_120", 1792, 96, r"GeForce RTX 5090"),
    _instinct("MI300X", "gfx942", 5300, 304),
    _instinct("MI325X", "gfx942", 6000, 304),
    _instinct("MI355X", "gfx950", 8000, 256),
    CPU,
)


def known_names() -> list[str]:
    """Everything `--device` accepts on some machine: auto, the families and the profiles."""
    names = [name for profile in PROFILES for name in (profile.family, profile.name)]
    return ["auto", *dict.fromkeys(names)]


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
        profile, l2_bytes=max(profile.l2_bytes, reported), last_level_bytes=max(profile.last_level_bytes, reported)
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
    refuse_unknown(asked, (profile.name for profile, _ in present))
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


def refuse_unknown(asked: str, present: Iterable[str]) -> None:
    """Raise UsageError for a name that is no device anywhere, nor among the names of those `present`."""
    names = dict.fromkeys([*known_names(), *present])
    if asked.strip().lower() not in names:
        raise UsageError(f"--device {asked.strip() or '(empty)'}: no such device; choose among {', '.join(names)}")


def nvidia_here() -> list[str]:
    """The names that `--device` takes for this machine's GPUs, as NVML says; empty without it."""
    return [detect(DeviceFacts("cuda", name, "")).name for name in nvml.names()]


def refuse_shared(facts: DeviceFacts) -> None:
    """Raise UnavailableError where other processes hold a context on the device: they would disturb every figure."""
    if facts.others:
        others = ", ".join(map(str, facts.others))
        raise UnavailableError(
            f"other processes use this {facts.name} (process {others}) and would disturb every figure; "
            "end them, or measure beside them with --allow-others"
        )


def _generic(facts: DeviceFacts) -> DeviceProfile:
    slug = re.sub(r"[^a-z0-9]+", "-", facts.name.lower()).strip("-") or "cuda-unknown"
    if slug in known_names():  # no profile matched, so it must not have the name of one
        slug = f"{slug}-unknown"
    hidden = HIDDEN_LAST_LEVEL_BYTES.get(facts.architecture, 0)
    return DeviceProfile(slug, slug, facts.name, facts.architecture, None, 0, hidden)
