"""Which device is here and what is known of it. Imports `harness.cases` and `harness.errors`."""

from harness.devices.detection import choose, detect, read_available, read_facts, refuse_shared
from harness.devices.profiles import PROFILES, DeviceFacts, DeviceProfile, known_names

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
