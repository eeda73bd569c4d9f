"""The device and the revision of normbwd as a results file states them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from harness.devices import nvml
from harness.devices.facts import DeviceFacts
from harness.devices.profiles import DeviceProfile
from harness.git import GitError, git
from harness.records.published_plan import CHECKOUT
from harness.records.run_records import DeviceRecord

DOCUMENTS = ("results", "docs", "site", "README.md")  # written by `publish` and `documents`; they decide no figure


def device_record(profile: DeviceProfile, facts: DeviceFacts) -> DeviceRecord:
    """The device as a results file states it, with the driver, clocks and power limit that NVML reads now."""
    gpu = nvml.find(facts.uuid) if facts.architecture.startswith("sm_") else None
    reading = gpu.read() if gpu else nvml.SensorReading()
    return DeviceRecord(
        profile=profile.name,
        name=facts.name,
        architecture=facts.architecture,
        datasheet_gbps=profile.datasheet_gbps,
        l2_bytes=profile.l2_bytes,
        last_level_bytes=profile.last_level_bytes,
        sm_count=facts.sm_count,
        memory_bytes=facts.memory_bytes,
        driver=gpu.driver() if gpu else None,
        sm_clock_mhz=reading.sm_clock_mhz,
        memory_clock_mhz=reading.memory_clock_mhz,
        power_limit_w=gpu.power_limit_w() if gpu else None,
        gpu=gpu_hash(facts),
    )


def gpu_hash(facts: DeviceFacts) -> str | None:
    """What tells a GPU from others without naming it: a hash of its UUID; None where it has none."""
    return hashlib.sha256(facts.uuid.encode()).hexdigest()[:12] if facts.uuid else None


def own_revision(say: Callable[[str], None] = lambda _: None, checkout: Path = CHECKOUT) -> str | None:
    """The git revision of this checkout, with `-dirty` where it has uncommitted changes; None where there is none.

    Changes to DOCUMENTS do not count, as they leave the measured code as it is. A copy without git, such as files sent
    to a GPU host, may state its revision in NORMBWD_REVISION. Where git refuses, `say` gets its words.
    """
    if revision := os.environ.get("NORMBWD_REVISION"):
        return revision
    if not (checkout / ".git").exists():
        return None
    try:
        commit = git(checkout, "describe", "--always", "--abbrev=12")
        changed = git(checkout, "diff", "HEAD", "--name-only", "--", ".", *(f":(exclude){path}" for path in DOCUMENTS))
    except GitError as error:
        say(f"no revision of normbwd is recorded: {error}")
        return None
    return f"{commit}-dirty" if changed else commit
