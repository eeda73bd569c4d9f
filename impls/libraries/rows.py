"""The backward of a library that takes x and dy as contiguous rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.cases import Grads, Inputs, contiguous_rows


def of_rows(inputs: Inputs, call: Callable[[Any], Any]) -> Callable[[], Grads]:
    """The backward by a function of dy, which gives dx, then the gradients of the parameters that the case has."""

    def backward() -> Grads:
        dx, *parameters = call(contiguous_rows(inputs.dy))
        return Grads(dx.view(inputs.x.shape), *parameters)

    return backward
