"""The profile that fits the device here. Pure: decides on `DeviceFacts`, so that it is tested without a GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from harness.devices.facts import DeviceFacts
from harness.devices.profiles import (
    CPU,
    HIDDEN_LAST_LEVEL_BYTES,
    PROFILES,
    UNKNOWN_CPU_CACHE_BYTES,
    DeviceProfile,
    known_names,
)
from harness.errors import UnavailableError, UsageError


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
        present_names = (profile.name for profile, _ in present)
        listed = ", ".join(dict.fromkeys([*names, *present_names]))
        raise UsageError(f"--device {asked.strip() or '(empty)'}: no such device; choose among {listed}")
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
        others = ", ".join(map(str, facts.others))
        raise UnavailableError(
            f"other processes use this {facts.name} (process {others}) and would disturb every figure; "
            "end them, or measure beside them with --allow-others"
        )


def _generic(facts: DeviceFacts) -> DeviceProfile:
    slug = re.sub(r"[^a-z0-9]+", "-", facts.name.lower()).strip("-") or "cuda-unknown"
    if slug in known_names():  # no profile matched, so it must not have the name of one
        slug = f"{slug}-unknown"
    vendor = "AMD" if facts.architecture.startswith("gfx") else "NVIDIA"
    hidden = HIDDEN_LAST_LEVEL_BYTES.get(facts.architecture, 0)
    return DeviceProfile(slug, slug, facts.name, vendor, facts.architecture, None, 0, hidden)
