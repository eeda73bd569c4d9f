"""The contexts of a training step: the engine's one order of a sample, on a device that does more at some steps.

- graph: the timed call is the replay of a CUDA graph that holds the backward. The order is the same.
- hot-dy: dy is written by an elementwise kernel after the hold, just before the start mark.
- in-a-row: a candidate is called several times on other memory after the hold, just before the start mark.
- beside:N: a competing kernel holds multiprocessors, from the hold on until the end mark has been waited for.
- host: the clock is the host's, around several calls behind the hold; the queue proof says that none of them waited.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness.devices.capture import Captured
from harness.devices.holder import Holder
from harness.records.reasons import Reason
from harness.records.schema import Flush
from harness.timing.engine import SHORTEST_HOLD_US, Candidate, Device

CALLS = 20  # calls in a sample of the host's time, because the first call after a pause costs more
CALLS_BEFORE = 4  # in a row: on an H200 up to the fifth call takes longer than the one before, and later ones do not
OUTLASTS_US = 3000.0  # how much longer than the hold the other kernel runs, at least
OUTLASTS_TIMES = 20  # and how many times as long as the slowest backward takes alone
# A backward that takes half as long as the other kernel runs waits for it: alone it takes a twentieth, or less.
WAITING = 0.5


_Delegating: Any = object  # to a type checker, a class that has whatever the wrapped device has


class _Wrapped(_Delegating):
    """A device that passes on to another one what it does not do itself."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


class Preceded(_Wrapped):
    """A device on which calls just before the start mark leave lines in the cache that are not written back yet."""

    def __init__(self, device: Device, call: Callable[[], object]) -> None:
        super().__init__(device)
        self.precede(call)

    def precede(self, call: Callable[[], object], times: int = 1) -> None:
        """Let so many of this call precede the samples from now on; the memory of the last answer is free."""
        self._call, self._times, self._answer = call, times, None

    def start(self) -> None:
        """Call, then mark the beginning."""
        for _ in range(self._times):
            self._answer = self._call()
        self._device.start()


class HostClock(_Wrapped):
    """A device whose host is timed, over the CALLS calls of a candidate that `repeated` made."""

    def __init__(self, device: Device, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        super().__init__(device)
        self._clock_ns = clock_ns
        self._start_ns = self._end_ns = 0

    def flush(self, mode: Flush) -> None:
        """Do nothing: the host's time does not depend on the device's caches."""

    def start(self) -> None:
        """Mark the beginning on the device, for the queue proof, and read the host's clock."""
        self._device.start()
        self._start_ns = self._clock_ns()

    def end(self) -> None:
        """Read the clock."""
        self._end_ns = self._clock_ns()
        self._device.end()

    def elapsed_us(self) -> float:
        """Wait for the device; returns the host's time for one call."""
        self._device.elapsed_us()
        return (self._end_ns - self._start_ns) / 1e3 / CALLS


class CompetingKernel(_Wrapped):
    """A device on which another kernel holds multiprocessors, for much longer than a backward takes alone.

    The host checks that all programs of that kernel run before it queues the start mark, and that none has ended after
    the end mark. A backward that ends only after the other kernel's time was up has waited for it: that sample counts.
    Any other early end of the kernel voids the sample.
    """

    def __init__(self, device: Device, holder: Holder, programs: int, alone_us: float) -> None:
        super().__init__(device)
        self._holder = holder
        self._programs = programs
        self.outlasts_us = max(OUTLASTS_US, OUTLASTS_TIMES * alone_us)
        self._fault: Reason | None = None

    def hold(self, duration_us: float) -> None:
        """Start the other kernel behind the flush, together with the hold, and wait until all its programs run."""
        self._holder.occupy(self._programs, duration_us + self.outlasts_us)
        self._device.hold(duration_us)
        self._fault = None if self._holder.started() else Reason("beside_did_not_start")

    def elapsed_us(self) -> float:
        """Wait for the end mark, check that the other kernel still ran, and end it."""
        us = self._device.elapsed_us()
        state = self._holder.state()
        waited_for_it = state == "over" and self.waits(us)
        if self._fault is None and state != "running" and not waited_for_it:
            self._fault = Reason("beside_ended_early")
        self._holder.release()
        return us

    def fault(self) -> Reason | None:
        """Why the other kernel did not run all the time, or a fault of the device."""
        return self._fault or self._device.fault()

    def waits(self, us: float) -> bool:
        """Whether a backward that took `us` waited for the other kernel."""
        return us >= WAITING * self.outlasts_us


def reset(candidate: Candidate) -> Candidate:
    """The candidate with the hold and the queue proof reset."""
    return replace(candidate, hold_us=SHORTEST_HOLD_US, proven=True)


def repeated(candidate: Candidate) -> Candidate:
    """The candidate with CALLS calls in place of one, for HostClock; only the last answer is kept."""

    def run() -> object:
        for _ in range(CALLS - 1):
            candidate.run()
        return candidate.run()

    return replace(reset(candidate), run=run)


def replayed(candidate: Candidate, captured: Captured[object], spoil: Callable[[object], None]) -> Candidate:
    """The candidate as the replay of its capture; before each replay `spoil` overwrites the previous gradients."""

    def restore() -> None:
        candidate.restore()
        spoil(captured.answer)

    def run() -> object:
        captured.replay()
        return captured.answer

    return replace(reset(candidate), run=run, restore=restore)
