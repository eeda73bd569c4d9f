"""A device that does nothing and remembers the order of its calls."""

from collections import Counter

from harness.devices.nvml import SensorReading
from harness.timing.engine import Candidate

SILENT = (SensorReading(),)


class FakeDevice:
    """Scripted by candidate name.

    `span_us(name, run)` is how long a run takes (numbered from 0 for each candidate), `host_us` how long the host takes
    to queue a candidate: the proof holds where the hold was longer. `grows` holds the (name, run) at which the
    allocator asks the driver for memory. The clock advances by `tick_s` at each reading. `readings` are those of the
    sensors, one after the other; the last one is repeated.
    """

    def __init__(self, span_us=lambda name, run: 10.0, host_us=None, grows=(), tick_s=0.0, readings=SILENT):
        self.events = []
        self.runs = Counter()
        self._span_us = span_us
        self._host_us = host_us or {}
        self._grows = frozenset(grows)
        self._tick_s = tick_s
        self._readings = list(readings)
        self._allocations = 7
        self._clock_s = 100.0
        self._hold_us = 0.0
        self._ran = ("nobody", 0)

    def candidate(self, name, returns=lambda: None, **more):
        """A candidate whose runs are recorded."""
        return Candidate(name, lambda: self._run(name, returns), **more)

    def samples(self):
        """The names in the order in which they ran."""
        return [event.removeprefix("run ") for event in self.events if event.startswith("run ")]

    def _run(self, name, returns):
        self.events.append(f"run {name}")
        self._ran = (name, self.runs[name])
        self.runs[name] += 1
        self._allocations += self._ran in self._grows
        return returns()

    def place_outputs(self, rng):
        self.events.append("place")

    def flush(self, mode):
        self.events.append(f"flush {mode}")

    def allocations(self):
        return self._allocations

    def hold(self, duration_us):
        self.events.append(f"hold {duration_us:g}")
        self._hold_us = duration_us

    def start(self):
        self.events.append("start")

    def end(self):
        self.events.append("end")

    def all_queued_before_start(self):
        self.events.append("query")
        return self._hold_us > self._host_us.get(self._ran[0], 0.0)

    def elapsed_us(self):
        self.events.append("elapsed")
        return self._span_us(*self._ran)

    def fault(self):
        return None

    def read_sensors(self):
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]

    def now_s(self):
        self._clock_s += self._tick_s
        return self._clock_s
