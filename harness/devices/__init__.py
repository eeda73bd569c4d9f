"""Which device is here, and what its datasheet says. Imports `harness.cases` and `harness.errors`."""

from harness.devices.detection import choose, detect, refuse_shared
from harness.devices.facts import DeviceFacts, read_available, read_facts
from harness.devices.profiles import PROFILES, DeviceProfile, known_names

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
