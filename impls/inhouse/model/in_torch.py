"""torch's own norms with the in-house backward: `F.layer_norm`, `F.rms_norm` and their modules in any eager model.

Forward, what it saves and autograd's node stay torch's, in C++; only the operator that the node calls is another.
torch.compile decomposes that operator, and does not get here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ..backward import norm_backward
from ..problem import margin_of_environment

Gradient = torch.Tensor | None

_taken_over: dict[str, torch.library.Library] = {}  # by kind of device; what a library registered ends with it


class Handle:
    """What `as_torchs_backward` returns; `remove()`, or the end of a `with`, gives torch its own backward again."""

    def __init__(self, device: str, library: torch.library.Library) -> None:
        self._device = device
        self._library: torch.library.Library | None = library

    def remove(self) -> None:
        """Give torch its own backward again; a second time this does nothing."""
        if self._library is not None:
            self._library = None
            del _taken_over[self._device]

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def as_torchs_backward(device: str = "cuda") -> Handle:
    """Let torch's LayerNorm and RMSNorm take this backward on a kind of device, until the handle is removed.

    What it does not take (several normalised dimensions, float64, a last dimension with a stride, a frozen x) goes on
    to torch's own. Raises RuntimeError where they have it already, ValueError where NORMBWD_SM_MARGIN is no number.
    """
    margin_of_environment()  # later, what it raises would be taken for inputs that go on to torch's own
    if device in _taken_over:
        raise RuntimeError(f"torch's norms have this backward on {device} already: remove the first handle before")
    library = torch.library.Library("aten", "IMPL")
    for name, ours in (("native_layer_norm_backward", _layer_norm), ("_fused_rms_norm_backward", _rms_norm)):
        _replace(library, name, device.upper(), ours)
    _taken_over[device] = library  # so that it stays though nobody keeps the handle
    return Handle(device, library)


def _replace(library: torch.library.Library, name: str, key: str, ours: Callable[..., Any]) -> None:
    """Put our kernel of an operator before torch's, which it is given, on a dispatch key where torch has one."""
    try:
        torchs = torch.library.get_kernel(f"aten::{name}", key)
    except RuntimeError:  # on a CPU torch composes its RMSNorm of other operators
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel", UserWarning)
        library.impl(name, partial(ours, torchs), key, with_keyset=True, allow_override=True)


def _layer_norm(
    torchs: Any,
    keys: torch.DispatchKeySet,
    dy: torch.Tensor,
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: Gradient,
    bias: Gradient,
    wanted: Sequence[bool],
) -> tuple[Gradient, Gradient, Gradient]:
    """`aten::native_layer_norm_backward`."""
    found = _gradients(dy, x, mean.reshape(-1), rstd, weight, wanted, has_bias=bias is not None)
    if found is not None:
        return found
    return torchs.call_boxed(keys, dy, x, normalized_shape, mean, rstd, weight, bias, wanted)


def _rms_norm(
    torchs: Any,
    keys: torch.DispatchKeySet,
    dy: torch.Tensor,
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    rstd: torch.Tensor,
    weight: Gradient,
    wanted: Sequence[bool],
) -> tuple[Gradient, Gradient]:
    """`aten::_fused_rms_norm_backward`."""
    found = _gradients(dy, x, None, rstd, weight, (*wanted, False), has_bias=False)
    if found is not None:
        return found[:2]
    return torchs.call_boxed(keys, dy, x, normalized_shape, rstd, weight, wanted)


def _gradients(
    dy: torch.Tensor,
    x: torch.Tensor,
    mean: Gradient,
    rstd: torch.Tensor,
    weight: Gradient,
    wanted: Sequence[bool],
    *,
    has_bias: bool,
) -> tuple[Gradient, Gradient, Gradient] | None:
    """dx, dweight and dbias, those that are wanted; None for what the kernels do not take."""
    if not wanted[0]:  # torch then writes no dx
        return None
    try:
        given, dx_alone = (dy, x, weight, mean, rstd.reshape(-1)), not any(wanted[1:])
        dx, dweight, dbias = norm_backward(*given, has_bias=has_bias, dx_alone=dx_alone)
    except ValueError:
        return None
    return dx, dweight if wanted[1] else None, dbias if wanted[2] else None
