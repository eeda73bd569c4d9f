"""The device that tensors are on: what the choice of a launch may know of it, and its name."""

from __future__ import annotations

from functools import lru_cache

import torch

from .problem import Gpu


@lru_cache
def gpu_of(device: torch.device) -> Gpu:
    """What the choice of a launch may know of a device."""
    if device.type != "cuda":
        return Gpu()
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        shared = getattr(properties, "shared_memory_per_block", 64 * 1024)
        return Gpu(properties.multi_processor_count, shared, shared)
    return Gpu(
        properties.multi_processor_count,
        properties.shared_memory_per_block_optin,
        properties.shared_memory_per_multiprocessor,
        ptx=properties.major >= 8,
    )


@lru_cache
def name_of(device: torch.device) -> str:
    """The name of a device, as a tuned file has it; a CPU is `cpu`."""
    return torch.cuda.get_device_properties(device).name if device.type == "cuda" else "cpu"
