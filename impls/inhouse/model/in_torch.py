"""torch's own norms with the in-house backward: `F.layer_norm`, `F.rms_norm` and their modules in any eager model.

Forward, what it saves and autograd's node stay torch's, in C++; only the operator that the node calls is another.
torch.compile decomposes that operator, and does not get here.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ..backward import norm_backward
from ..problem import margin_of_environment

Gradient = torch.Tensor | None

# By the number of its handle: the kind of device, and the library; what this registered ends with it.
_taken_over: OrderedDict[int, tuple[str, torch.library.Library]] = OrderedDict()


def as_torchs_backward(device: str = "cuda") -> RemovableHandle:
    """Let torch's LayerNorm and RMSNorm take this backward on a kind of device, until the handle is removed.

    `remove()`, or the end of a `with`, gives torch its own backward again. It stays where nobody keeps the handle.
    What it does not take (several normalised dimensions, float64, a last dimension with a stride, a frozen x) goes on
    to torch's own. Raises RuntimeError where they have it already, ValueError where NORMBWD_SM_MARGIN is no number.
    """
    margin_of_environment()  # later, what it raises would be taken for inputs that go on to torch's own
    if device in [taken for taken, _ in _taken_over.values()]:
        raise RuntimeError(f"torch's norms have this backward on {device} already: remove the first handle before")
    library = torch.library.Library("aten", "IMPL")
    for name, ours in (("native_layer_norm_backward", _layer_norm), ("_fused_rms_norm_backward", _rms_norm)):
        _replace(library, name, device.upper(), ours)
    handle = RemovableHandle(_taken_over)
    _taken_over[handle.id] = device, library
    return handle


def _replace(library: torch.library.Library, name: str, key: str, ours: Callable[..., Any]) -> None:
    """Put our kernel of an operator before torch's, which it is given, on a dispatch key where torch has one."""
    try:
        torchs = torch.library.get_kernel(f"aten::{name}", key)
    except RuntimeError:  # on a CPU torch composes its RMSNorm of other operators
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel", UserWarning)
        library.impl(name, partial(ours, torchs), key, with_keyset=True, allow_override=True)


def _layer_norm(torchs: Any, keys: torch.DispatchKeySet, *given: Any) -> tuple[Gradient, Gradient, Gradient]:
    """`aten::native_layer_norm_backward`."""
    dy, x, _, mean, rstd, weight, bias, wanted = given
    found = _gradients(dy, x, mean.reshape(-1), rstd, weight, wanted, has_bias=bias is not None)
    return torchs.call_boxed(keys, *given) if found is None else found


def _rms_norm(torchs: Any, keys: torch.DispatchKeySet, *given: Any) -> tuple[Gradient, Gradient]:
    """`aten::_fused_rms_norm_backward`."""
    dy, x, _, rstd, weight, wanted = given
    found = _gradients(dy, x, None, rstd, weight, (*wanted, False), has_bias=False)
    return torchs.call_boxed(keys, *given) if found is None else found[:2]


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
