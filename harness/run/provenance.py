"""What a run was made with: the device of this moment, and the revision of this checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from harness.devices import DeviceFacts, DeviceProfile, nvml
from harness.results.run_records import DeviceRecord

CHECKOUT = Path(__file__).resolve().parents[2]
WRITTEN = ("results", "docs", "site", "README.md")  # by `publish` and `documents`; they decide no figure


def device_record(profile: DeviceProfile, facts: DeviceFacts) -> DeviceRecord:
    """The device as a results file states it, with driver, clocks and power limit of this moment where NVML knows."""
    gpu = nvml.find(facts.uuid) if facts.architecture.startswith("sm_") else None
    now = gpu.read() if gpu else nvml.Reading()
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
        sm_clock_mhz=now.sm_clock_mhz,
        memory_clock_mhz=now.memory_clock_mhz,
        power_limit_w=gpu.power_limit_w() if gpu else None,
    )


def own_revision(checkout: Path = CHECKOUT) -> str | None:
    """The git revision of this checkout, marked where it has uncommitted changes; None outside of one.

    What a publication writes is no such change: its next run measures the same code. A copy without git, such as on a
    GPU host that is sent files alone, may state its revision in NORMBWD_REVISION.
    """
    if stated := os.environ.get("NORMBWD_REVISION"):
        return stated
    if not (checkout / ".git").exists():
        return None
    try:
        described = _git(checkout, "describe", "--always", "--abbrev=12")
        changed = _git(checkout, "diff", "HEAD", "--name-only", "--", ".", *(f":(exclude){path}" for path in WRITTEN))
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{described}-dirty" if changed else described


def _git(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, text=True, check=True)
    return done.stdout.strip()
