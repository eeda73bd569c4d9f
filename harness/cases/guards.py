"""Where an input lies in memory: between two guards, and laid out as its kind says.

A guard holds bytes that are NaN in every dtype, so that what is read beyond an input shows in the gradients; what is
written there shows when the whole buffer is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.cases.input_kinds import Layout

GUARD_BYTES = 512  # what the CUDA allocator aligns to, so that the input is as aligned as a tensor of its own
GUARD = 0xFF


def place(tensor: torch.Tensor, layout: Layout, name: str, heads: int = 0, projection: int = 0) -> torch.Tensor:
    """Copy an input `(rows, cols)`, or a vector, into guarded memory; x, dy and the parameters may have a layout.

    Of an expanded dy the first row is kept, of a summed one nothing but ones. With `heads` an input is `(rows / heads,
    heads, cols)`, and x a slice of `projection` columns: its heads and its tokens have strides of their own.
    """
    if tensor.dim() < 2:
        changed = layout.removesuffix(" weight") if name.startswith(("weight", "bias")) else ""
        return _filled(tensor, (2,) if changed == "strided" else tensor.stride(), int(changed == "misaligned"))
    rows, cols = tensor.shape
    offset = int(layout == "misaligned")
    if heads:
        tensor = tensor.view(rows // heads, heads, cols)
        return _filled(tensor, (projection, cols, 1) if name == "x" else tensor.stride(), offset)
    if layout in ("3-d", "sliced x"):
        planes = 2 if rows % 2 == 0 and rows else 1
        tensor = tensor.view(planes, rows // planes, cols)
        is_slice = (layout, name) == ("sliced x", "x")
        return _filled(tensor, (2 * tensor.stride(0), cols, 1) if is_slice else tensor.stride())
    if (layout, name) == ("summed dy", "dy"):
        tensor = torch.ones_like(tensor)
    strides: dict[tuple[Layout, str], tuple[int, int]] = {
        ("strided x", "x"): (2 * cols, 1),
        ("every other x", "x"): (2 * cols, 2),
        ("transposed x", "x"): (1, max(rows, 1)),
        ("expanded dy", "dy"): (0, 1),
        ("summed dy", "dy"): (0, 0),
        ("transposed dy", "dy"): (1, max(rows, 1)),
    }
    return _filled(tensor, strides.get((layout, name), (cols, 1)), offset)


def _filled(tensor: torch.Tensor, strides: Sequence[int], offset: int = 0) -> torch.Tensor:
    """A copy with these strides in a buffer of its own; `offset` elements further from an aligned address."""
    lasts = [(size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True)]
    elements = 1 + sum(lasts) if tensor.numel() else 0
    item = tensor.element_size()
    size_bytes = -(-(2 * GUARD_BYTES + (elements + offset) * item) // 16) * 16
    buffer = torch.full((size_bytes,), GUARD, dtype=torch.uint8, device=tensor.device)
    placed = buffer.view(tensor.dtype).as_strided(tensor.shape, strides, GUARD_BYTES // item + offset)
    if tensor.numel():
        target = each_place_once(placed)
        target.copy_(tensor[tuple(slice(size) for size in target.shape)])
    return placed


def each_place_once(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor without the elements that an expansion repeats, so that it can be written to."""
    return tensor[tuple(slice(1) if stride == 0 else slice(None) for stride in tensor.stride())]


def whole_buffer(placed: torch.Tensor) -> torch.Tensor:
    """The buffer of a placed input, guards and gaps included, as int64 that autograd does not know of."""
    storage = placed.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=placed.device).set_(storage).view(torch.int64)
