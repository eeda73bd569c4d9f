"""Which device is here, and what its datasheet says. Imports `harness.cases` and `harness.errors`."""

from harness.devices.facts import DeviceFacts, read_available, read_facts
from harness.devices.profiles import (
    PROFILES,
    DeviceProfile,
    choose,
    detect,
    known_names,
    nvidia_here,
    refuse_shared,
    refuse_unknown,
)

__all__ = [
    "PROFILES",
    "DeviceFacts",
    "DeviceProfile",
    "choose",
    "detect",
    "known_names",
    "nvidia_here",
    "read_available",
    "read_facts",
    "refuse_shared",
    "refuse_unknown",
]
