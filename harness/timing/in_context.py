"""The contexts of a training step: the engine's one order of a sample, on a device that does more at some steps.

- graph: the backward of a candidate is the replay of a graph that holds it. The order is the same.
- hot-dy: dy is written by an elementwise kernel after the hold, just before the start mark.
- beside: another kernel holds multiprocessors, from the hold on until the end mark has been waited for.
- host: the clock is the host's, around several calls behind the hold; the queue proof says that none of them waited.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

from harness.devices.capture import Captured
from harness.devices.holder import Holder
from harness.devices.nvml import Reading
from harness.results.schema import Flush
from harness.timing.engine import SHORTEST_HOLD_US, Candidate, Device

CALLS = 20  # of a sample of the host's time: one call after a pause costs more than one of many
OUTLASTS_US = 3000.0  # how much longer than the hold the other kernel runs, at least
OUTLASTS_TIMES = 20  # and how many times as long as the slowest backward takes alone
# A backward that takes half as long as the other kernel runs waits for it: alone it takes a twentieth, or less.
WAITING = 0.5


class _Wrapped:
    """A device that does what another does."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def flush(self, mode: Flush) -> None:
        self._device.flush(mode)

    def place_outputs(self, rng: random.Random) -> None:
        self._device.place_outputs(rng)

    def allocations(self) -> int:
        return self._device.allocations()

    def hold(self, duration_us: float) -> None:
        self._device.hold(duration_us)

    def start(self) -> None:
        self._device.start()

    def end(self) -> None:
        self._device.end()

    def held(self) -> bool:
        return self._device.held()

    def elapsed_us(self) -> float:
        return self._device.elapsed_us()

    def fault(self) -> str | None:
        return self._device.fault()

    def look(self) -> Reading:
        return self._device.look()

    def now_s(self) -> float:
        return self._device.now_s()


class HotDy(_Wrapped):
    """A device on which dy was written just before: it lies in the cache, as far as that has room, and is dirty."""

    def __init__(self, device: Device, write_dy: Callable[[], object]) -> None:
        super().__init__(device)
        self._write_dy = write_dy

    def start(self) -> None:
        """Write dy, then mark the beginning."""
        self._write_dy()
        self._device.start()


class HostClock(_Wrapped):
    """A device whose host is timed, over the CALLS calls of a candidate that `repeated` made."""

    def __init__(self, device: Device, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        super().__init__(device)
        self._clock_ns = clock_ns
        self._start_ns = self._end_ns = 0

    def flush(self, mode: Flush) -> None:
        """Nothing: the device's caches are not the host's."""

    def start(self) -> None:
        """Mark the beginning on the device, so that the proof can be had, and read the clock."""
        self._device.start()
        self._start_ns = self._clock_ns()

    def end(self) -> None:
        """Read the clock."""
        self._end_ns = self._clock_ns()
        self._device.end()

    def elapsed_us(self) -> float:
        """Wait for the device; the host's time for one call."""
        self._device.elapsed_us()
        return (self._end_ns - self._start_ns) / 1e3 / CALLS


class Beside(_Wrapped):
    """A device of which another kernel holds some multiprocessors, longer than any backward of `alone_us` takes.

    The host sees that all its programs run before the start mark is queued, and that none has ended once the end mark
    has happened. A backward that ends only after the other kernel gave up, because its time was up, waits for it: that
    time is a sample. Any other end of the kernel voids the sample.
    """

    def __init__(self, device: Device, holder: Holder, programs: int, alone_us: float) -> None:
        super().__init__(device)
        self._holder = holder
        self._programs = programs
        self.outlasts_us = max(OUTLASTS_US, OUTLASTS_TIMES * alone_us)
        self._fault: str | None = None

    def hold(self, duration_us: float) -> None:
        """Let the other kernel start behind the flush, beside the hold, and wait until all of it runs."""
        self._holder.occupy(self._programs, duration_us + self.outlasts_us)
        self._device.hold(duration_us)
        self._fault = None if self._holder.started() else "the kernel beside did not start"

    def elapsed_us(self) -> float:
        """Wait for the end mark, look at the other kernel, and end it."""
        us = self._device.elapsed_us()
        state = self._holder.state()
        waited_for_it = state == "over" and self.waits(us)
        if self._fault is None and state != "running" and not waited_for_it:
            self._fault = "the kernel beside ended early"
        self._holder.release()
        return us

    def fault(self) -> str | None:
        """Why the other kernel was not there all the time."""
        return self._fault or self._device.fault()

    def waits(self, us: float) -> bool:
        """Whether a backward that took so long waited for the other kernel."""
        return us >= WAITING * self.outlasts_us


def anew(candidate: Candidate) -> Candidate:
    """The candidate with nothing known yet of how long its host takes."""
    return replace(candidate, hold_us=SHORTEST_HOLD_US, proven=True)


def repeated(candidate: Candidate) -> Candidate:
    """The candidate with CALLS calls in place of one, for HostClock; only the last answer is kept."""

    def run() -> object:
        for _ in range(CALLS - 1):
            candidate.run()
        return candidate.run()

    return replace(anew(candidate), run=run)


def replayed(candidate: Candidate, captured: Captured[object], spoil: Callable[[object], None]) -> Candidate:
    """The candidate as the replay of its capture; `spoil` fills an answer, so that one that is left over is seen."""

    def restore() -> None:
        candidate.restore()
        spoil(captured.answer)

    def run() -> object:
        captured.replay()
        return captured.answer

    return replace(anew(candidate), run=run, restore=restore)
