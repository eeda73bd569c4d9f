"""Shapes drawn by a seed, so that nobody chose them: `--draw 40`, or `--draw 40@SEED` for a chosen seed."""

from __future__ import annotations

import math
import random
import re

from harness.cases.suites import Shape
from harness.errors import UsageError

COLUMNS = (300, 65536)
ELEMENTS = (4 << 20, 100 << 20)
VECTOR, ANY_OF = 8, 4  # columns are a multiple of VECTOR, as of most models, but in one of ANY_OF shapes
MOST = 1000


def parse_draw(text: str) -> tuple[int, int | None]:
    """The number of shapes and the seed, None where none is named. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,4})(?:@([0-9]{1,18}))?", text.strip())
    if match is None or not 1 <= int(match[1]) <= MOST:
        raise UsageError(f"--draw {text}: must be 1 to {MOST} shapes, such as --draw 40, or 40@SEED to draw them again")
    return int(match[1]), int(match[2]) if match[2] else None


def draw_shapes(number: int, seed: int | None) -> tuple[Shape, ...]:
    """So many different shapes, uniform in the logs of columns and of elements; the same for the same seed.

    A seed that is drawn later counts as 0, for a plan.
    """
    generator, shapes = random.Random(seed or 0), dict[Shape, None]()
    while len(shapes) < number:
        cols, elements = (round(math.exp(generator.uniform(*map(math.log, ends)))) for ends in (COLUMNS, ELEMENTS))
        if generator.randrange(ANY_OF):
            cols = -(-cols // VECTOR) * VECTOR
        shapes[max(1, round(elements / cols)), cols] = None
    return tuple(shapes)
