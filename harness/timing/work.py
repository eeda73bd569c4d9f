"""The work of known size that a self-test measures, on a GPU or a CPU."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from harness.timing.breakdown import breakdown
from harness.timing.engine import Candidate, Device

ALIGNED = 4096  # elements: a kernel's last block is whole, so that bytes and time are in proportion


class TensorWork:
    """Copies, elementwise kernels and reads over two pools of `largest` bytes, filled at random; sizes are in bytes.

    `cache_bytes` is the last-level cache; `largest`, the longest copy, is at most `multiples` caches, and less where
    memory is short.
    """

    def __init__(self, kind: str, device: Device, cache_bytes: int, multiples: int, gbps: float | None) -> None:
        self._kind = kind
        self._device = device
        self.cache_bytes = cache_bytes
        self.datasheet_gbps = gbps
        free = torch.cuda.mem_get_info()[0] if kind == "cuda" else 8 * multiples * cache_bytes
        self.largest = min(multiples, free // 4 // cache_bytes) * cache_bytes
        pool = torch.empty(max(self.largest, cache_bytes), dtype=torch.uint8, device=kind)
        self._from = pool.random_(generator=torch.Generator(kind).manual_seed(1))
        self._to = torch.empty_like(pool)
        self._sink = torch.empty((), dtype=torch.int64, device=kind)
        self._next = 0

    def nothing(self) -> Candidate:
        """No work at all."""
        return Candidate("nothing", lambda: None)

    def null_kernel(self) -> Candidate | None:
        """A spin kernel that spins for no cycles; None on a CPU."""
        if self._kind != "cuda":
            return None
        return Candidate("null kernel", lambda: torch.cuda._sleep(0))  # pyright: ignore[reportPrivateUsage]

    def copies(self, size: int, count: int = 1) -> Candidate:
        """`count` copies of `size` bytes, each between buffers of its own."""
        pairs = [(self._slice(self._to, place, size), self._slice(self._from, place, size)) for place in range(count)]

        def run() -> None:
            for to, source in pairs:
                to.copy_(source)

        return Candidate(f"{count} x copy of {size} bytes", run)

    def elementwise(self, size: int, name: str = "") -> Candidate:
        """One kernel that reads and writes `size` bytes: its grid grows with them, while a copy may take two."""
        elements = size // 4 // ALIGNED * ALIGNED
        source, to = self._from.view(torch.int32)[:elements], self._to.view(torch.int32)[:elements]
        return Candidate(f"elementwise on {size} bytes{name}", lambda: torch.neg(source, out=to))

    def probe(self) -> Candidate:
        """Read the first half of a cache."""
        half = self._half(0)
        return Candidate("probe", lambda: self._read(half))

    def fresh_probe(self) -> Candidate:
        """Read another half of a cache at each call, in turn over the whole pool, so that it has long been evicted."""

        def run() -> None:
            halves = self._from.numel() // (self.cache_bytes // 2)
            self._next = self._next % (halves - 1) + 1  # never the probe's own
            self._read(self._half(self._next))

        return Candidate("fresh probe", run)

    def spans_us(self, candidates: Sequence[Candidate]) -> list[tuple[float, float]] | None:
        """The time of each candidate by events, and by the profiler (lead and span); None where it sees no kernels."""
        if self._kind != "cuda":
            return None
        breakdowns = breakdown(candidates, self._device, "clean", random.Random(0))
        totals: list[Any] = [breakdowns[candidate.name].totals for candidate in candidates]
        return None if None in totals else [(total.event_us, total.lead_us + total.span_us) for total in totals]

    def _slice(self, pool: torch.Tensor, place: int, size: int) -> torch.Tensor:
        return pool[place * size : (place + 1) * size]

    def _half(self, place: int) -> torch.Tensor:
        return self._slice(self._from, place, self.cache_bytes // 2).view(torch.int64)

    def _read(self, half: torch.Tensor) -> None:
        torch.sum(half, 0, out=self._sink)
