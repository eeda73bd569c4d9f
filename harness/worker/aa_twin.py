"""The copies of an adapter that a comparison of two of its revisions loads: base, head, and base once more.

Merely being another copy has a price: its code lies at other addresses, and loaded code that stands in the blocks twice
is run twice as often, and found warmer in caches that no flush empties. Base's second copy pays it as head does, so it
is the A/A twin: head is to base what the twin is to base, and the change besides. Mytkowicz et al., Producing wrong
data without doing anything obviously wrong, ASPLOS (2009); Curtsinger and Berger, Stabilizer, ASPLOS (2013).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from harness.worker.revisions import Side

AGAIN = "again"  # the word that the twin's name ends in


def copies(sides: Sequence[Side], seed: int, process: int) -> tuple[Side, ...]:
    """What a process loads to compare two sides, base and head, in the order in which it does.

    The order is drawn for each process: what being loaded later costs is then noise between processes, and no bias. The
    same seed draws the same.
    """
    if not sides:
        return ()
    loaded = [*sides, replace(sides[0], word=AGAIN)]
    random.Random(f"{seed}/{process}").shuffle(loaded)
    return tuple(loaded)


def twin_of(base: str) -> str:
    """The name of base's second copy, given that of base."""
    return f"{base.rpartition('@')[0]}@{AGAIN}"
