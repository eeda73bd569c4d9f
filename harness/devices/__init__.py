"""Which device is here, and what its datasheet says. Imports `harness.cases` and `harness.errors`."""

from harness.devices.facts import DeviceFacts, read_available, read_facts
from harness.devices.profiles import PROFILES, DeviceProfile, choose, detect, known_names, refuse_shared

__all__ = [
    "PROFILES",
    "DeviceFacts",
    "DeviceProfile",
    "choose",
    "detect",
    "known_names",
    "read_available",
    "read_facts",
    "refuse_shared",
]
