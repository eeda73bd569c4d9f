"""The device that tensors are on: what the choice of a launch may know of it, its name, and what is current on it.

What is asked at every call is asked of torch's own private functions, which are ten times as quick as the public ones.
Those take their place where torch lacks them.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch.autograd import forward_ad

from .problem import GpuLimits


@lru_cache
def gpu_of(device: torch.device, sm_margin: int = 0) -> GpuLimits:
    """What the choice of a launch may know of a device, of which so many multiprocessors are left to other kernels.

    Raises ValueError where none would be left to the launch.
    """
    whole = _whole(device)
    if not 0 <= sm_margin < whole.multiprocessors:
        raise ValueError(f"sm_margin must be 0 to {whole.multiprocessors - 1} on this device, not {sm_margin}")
    return replace(whole, multiprocessors=whole.multiprocessors - sm_margin, sm_margin=sm_margin)


def _whole(device: torch.device) -> GpuLimits:
    if device.type != "cuda":
        return GpuLimits()
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        shared = getattr(properties, "shared_memory_per_block", 64 * 1024)
        return GpuLimits(properties.multi_processor_count, shared, shared)
    return GpuLimits(
        properties.multi_processor_count,
        properties.shared_memory_per_block_optin,
        properties.shared_memory_per_multiprocessor,
        ptx=properties.major >= 8,
    )


@lru_cache
def name_of(device: torch.device) -> str:
    """The name of a device, as a tuned file has it; a CPU is `cpu`."""
    return torch.cuda.get_device_properties(device).name if device.type == "cuda" else "cpu"


def _stream(index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


def _allocate(shape: torch.Size, strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


_private: Any = torch._C
_of_dynamo: Any = getattr(getattr(_private, "_dynamo", None), "guards", None)
# The number of the current device, the handle of the current stream on a device, whether the current stream is
# captured, and empty memory on the current device, as the programs of torch.compile allocate it.
current_device: Callable[[], int] = getattr(_private, "_cuda_getDevice", torch.cuda.current_device)
current_stream: Callable[[int], int] = getattr(_private, "_cuda_getCurrentRawStream", _stream)
is_capturing: Callable[[], bool] = getattr(
    _private, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
)
allocate: Callable[..., torch.Tensor] = getattr(_of_dynamo, "_empty_strided_cuda", _allocate)
# Makes what compares tensors with these at once: class, dtype, device, shape and strides. None where torch has none.
make_guards: Callable[..., Any] | None = getattr(_of_dynamo, "TensorGuards", None)


def is_observed() -> bool:
    """Whether operators are observed: by a mode, torch.jit.trace, or what wants other derivatives than autograd's."""
    return bool(_private._len_torch_dispatch_stack() or _private._get_tracing_state() or is_transformed())


def is_transformed() -> bool:
    """Whether a transform of torch.func is active, or numbers may be dual."""
    return _private._are_functorch_transforms_active() or forward_ad._current_level >= 0
