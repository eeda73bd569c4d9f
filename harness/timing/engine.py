"""The order of events in which backwards are timed; independent of torch.

A sample is: restore, place outputs, flush, hold, start, backward, end, proof. A block is one sample of every candidate
in random order. docs/method.md says why each step is there. The contexts of a training step have the same order, on a
device that does more at some steps: step_contexts.py.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.devices.nvml import SensorReading
from harness.records.reasons import Reason
from harness.records.schema import Flush
from harness.timing.conditions import void_cause
from harness.timing.stopping import StoppingRule

SHORTEST_HOLD_US = 100.0
LONGEST_HOLD_US = 50_000.0
WARM_UP_SAMPLES = 3
# The factor of the hold in a pass that profiles launches, or gives them events of their own: such a launch costs the
# host several times as much, and the device would wait for it.
LONGER_HOLD = 4


class Device(Protocol):
    """A device as the engine uses it: implemented in cuda.py and cpu.py, and by a fake in tests."""

    def flush(self, mode: Flush) -> None:
        """Evict the caches: with clean lines, with dirty lines, or not at all."""

    def place_outputs(self, rng: random.Random) -> None:
        """Draw the address that the next large output will get."""

    def allocations(self) -> int:
        """How often the allocator has asked the driver for memory so far."""
        ...

    def hold(self, duration_us: float) -> None:
        """Keep the stream busy this long, so that the host can queue everything behind it."""

    def start(self) -> None:
        """Mark the beginning of the timed span."""

    def end(self) -> None:
        """Mark the end of the timed span."""

    def all_queued_before_start(self) -> bool:
        """Whether the stream still waits before the start mark: the proof that no host time is inside the span."""
        ...

    def elapsed_us(self) -> float:
        """Wait for the end mark; the span between the marks in microseconds."""
        ...

    def fault(self) -> Reason | None:
        """Why the last sample is void, as far as the device can tell; None where it is not."""
        ...

    def read_sensors(self) -> SensorReading:
        """Clocks, power, temperature and throttling at this moment, as far as the device reports them."""
        ...

    def now_s(self) -> float:
        """Seconds on the host's clock, used only for time budgets."""
        ...


def _nothing() -> None:
    pass


@dataclass
class Candidate:
    """One backward to time: `run` is the timed call, `restore` undoes, untimed, what an earlier call overwrote.

    The engine lengthens `hold_us` until the queue proof succeeds, and clears `proven` where it cannot be had. `prepare`
    makes `run` anew on the current stream, for a capture, or on given inputs; None where `run` itself may be captured.
    `forward_backward` makes a call of the forward and the backward together, or is None.
    """

    name: str
    run: Callable[[], object]
    restore: Callable[[], None] = _nothing
    prepare: Callable[..., Callable[[], object]] | None = None
    forward_backward: Callable[[], Callable[[], object]] | None = None
    hold_us: float = SHORTEST_HOLD_US
    proven: bool = True


class CandidateError(Exception):
    """A candidate raised while it was being timed; `candidate` names it and the cause is chained."""

    def __init__(self, candidate: str) -> None:
        super().__init__(candidate)
        self.candidate = candidate


@dataclass(frozen=True)
class Sample:
    """One timed span in microseconds, and why it is void, if it is."""

    us: float
    void: Reason | None = None


@dataclass
class Measurement:
    """Samples of complete blocks by candidate, `blocks` their block numbers, and the voided blocks counted by cause.

    `readings` has the device's reading after each block that was attempted.
    """

    samples_us: dict[str, list[float]]
    blocks: list[int] = field(default_factory=list)
    voided: Counter[Reason] = field(default_factory=Counter)
    readings: list[SensorReading] = field(default_factory=list)

    @property
    def attempted(self) -> int:
        return len(self.blocks) + self.voided.total()


def longer_hold_us(candidate: Candidate) -> float:
    """The hold of a pass that profiles launches; the shortest for a backward that itself waits for the device."""
    return LONGER_HOLD * (candidate.hold_us if candidate.proven else SHORTEST_HOLD_US)


def make_ready(device: Device, candidate: Candidate, flush: Flush, rng: random.Random, hold_us: float) -> int:
    """Do all that precedes a sample's start mark; returns the count of allocations after the outputs were placed."""
    candidate.restore()
    device.place_outputs(rng)
    allocations = device.allocations()
    device.flush(flush)
    device.hold(hold_us)
    return allocations


def take_sample(
    device: Device,
    candidate: Candidate,
    flush: Flush,
    rng: random.Random,
    inspect: Callable[[object], None] = lambda _: None,
) -> Sample:
    """Time one backward; where the queue proof fails, take the sample again behind a longer hold.

    `inspect` is called with the gradients of each try, after its time is known.
    """
    while True:
        allocations = make_ready(device, candidate, flush, rng, candidate.hold_us)
        device.start()
        try:
            outputs = candidate.run()
            device.end()
            queued = device.all_queued_before_start()
            us = device.elapsed_us()  # an asynchronous error of the device is raised here
        except Exception as error:
            raise CandidateError(candidate.name) from error
        inspect(outputs)
        del outputs  # before the next sample's outputs are placed
        if queued or not candidate.proven:
            return Sample(us, Reason("allocator_grew") if device.allocations() != allocations else device.fault())
        if candidate.hold_us >= LONGEST_HOLD_US:
            candidate.proven = False  # the backward waits for the device itself, or the host is hopelessly slow
        candidate.hold_us = min(2 * candidate.hold_us, LONGEST_HOLD_US)


def measure(
    device: Device,
    candidates: Sequence[Candidate],
    rule: StoppingRule,
    flush: Flush,
    rng: random.Random,
    watch: Callable[[str], None] = lambda _: None,
) -> Measurement:
    """Time all candidates in interleaved blocks until the rule has enough.

    `watch` is called with the name of each candidate before its sample. Raises CandidateError where one of them raises.
    """
    measurement = Measurement({candidate.name: [] for candidate in candidates})
    for candidate in candidates:
        watch(candidate.name)
        for _ in range(WARM_UP_SAMPLES):
            take_sample(device, candidate, flush, rng)
    begun_s = device.now_s()
    before = device.read_sensors()
    while not rule.enough(measurement.samples_us, measurement.attempted, device.now_s() - begun_s):
        order = list(candidates)
        rng.shuffle(order)
        block: dict[str, Sample] = {}
        for candidate in order:
            watch(candidate.name)
            block[candidate.name] = take_sample(device, candidate, flush, rng)
        after = device.read_sensors()
        _record(measurement, block, void_cause(before, after))
        measurement.readings.append(after)
        before = after
    return measurement


def _record(measurement: Measurement, block: dict[str, Sample], throttled: Reason | None) -> None:
    """Keep a block, or void all of it if any sample is void: a ratio needs all of its samples."""
    number = measurement.attempted
    causes = [cause for cause in (throttled, *(sample.void for sample in block.values())) if cause]
    if causes:
        measurement.voided[causes[0]] += 1
        return
    measurement.blocks.append(number)
    for name, sample in block.items():
        measurement.samples_us[name].append(sample.us)
