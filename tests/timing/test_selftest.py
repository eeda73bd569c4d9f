import math
import random

import pytest

from harness.devices.nvml import SensorReading
from harness.timing.selftest import Effort, SelfTest
from tests.fake_device import FakeDevice
from tests.wording import worded

CACHE = 1 << 20
GBPS = 4000.0
FEW = Effort(blocks=10)


class Machine:
    """A device and its work with the times of an honest one; each attribute can be made to lie."""

    def __init__(self, **device):
        self.empty_us, self.null_us, self.start_us, self.gap_us = 1.25, 2.75, 1.5, 0.001
        self.warm, self.stays_warm = 0.75, False
        self.second_place = self.drift = 1.0
        self.noise = 0.0
        self.deaf = False  # to the bytes of an elementwise kernel
        self.heard = 1.0  # the share of those that were added that takes time
        self.calls_counted = True
        self.curve = 1.0  # what the smallest copy's time is multiplied by
        self.gbps = GBPS
        self.profiler = lambda us: us - 2.5
        self.cache_bytes, self.largest, self.datasheet_gbps = CACHE, 64 * CACHE, 4800.0
        self.device = FakeDevice(self._span_us, **device)
        self._us = {}

    def _span_us(self, name, run):
        mode = next(event for event in reversed(self.device.events) if event.startswith("flush"))
        us = self._us[name]
        if name == "probe" and (mode == "flush none" or self.stays_warm):
            us *= self.warm
        wobble = self.noise * (-1, 1, -0.5, 0.5, 0.2)[(3 * run + len(name)) % 5]
        return us * self.drift ** self.device.runs.total() * (1 + wobble)

    def _candidate(self, name, us):
        self._us[name] = us
        return self.device.candidate(name)

    def _moved_us(self, size):
        return 2 * size / self.gbps / 1e3

    def nothing(self):
        return self._candidate("nothing", self.empty_us)

    def null_kernel(self):
        return self._candidate("null", self.null_us)

    def copies(self, size, count=1):
        each = self._moved_us(size) * (self.curve if size == CACHE else 1.0)
        times = count if self.calls_counted else min(count, 2)
        return self._candidate(f"{count} copies of {size}", self.start_us + times * each + self.gap_us * (count - 1))

    def elementwise(self, size, name=""):
        size += (self.heard - 1) * max(0, size - 8 * CACHE)
        us = self.start_us + (500.0 if self.deaf else self._moved_us(size) * 100)
        return self._candidate(f"elementwise {size:.0f}{name}", us * (self.second_place if name else 1.0))

    def probe(self):
        return self._candidate("probe", 15.0)

    def fresh_probe(self):
        return self._candidate("fresh", 15.0)

    def spans_us(self, candidates):
        if self.profiler is None:
            return None
        return [(self._us[candidate.name], self.profiler(self._us[candidate.name])) for candidate in candidates]

    def tested(self):
        test = SelfTest(self.device, self, FEW, random.Random(0))
        return test.run(), test.checks


def failed(machine):
    return {check.name for check in machine.tested()[1] if check.passed is False}


def lying(**lies):
    machine = Machine()
    for name, lie in lies.items():
        assert hasattr(machine, name)
        setattr(machine, name, lie)
    return machine


def test_honest_engine_passes_every_check():
    """The error budget that is read equals the one that was planted."""
    machine = lying(start_us=0.001)
    budget, checks = machine.tested()
    assert [check.passed for check in checks] == [True] * len(checks)
    assert [check.name for check in checks] == [
        "empty region (t0)",
        "null kernel",
        "copy line",
        "copy of nothing",
        "copy bandwidth",
        "coldness",
        "control: warm buffer",
        "linearity",
        "A/A",
        "planted +1%",
        "planted +2%",
        "events' own share",
        "events against profiler",
    ]
    assert (budget.t0_us, budget.null_us, budget.fixed_us) == (1.25, 2.75, 1.25)
    assert budget.copy_gbps == pytest.approx(GBPS, rel=1e-3)
    assert budget.event_offset_us == 2.5
    assert 0 <= budget.ratio < 1e-3
    assert 0 <= budget.relative < 0.001


@pytest.mark.parametrize(
    ("lies", "caught"),
    [
        ({"empty_us": 12.0, "null_us": 13.0}, {"empty region (t0)"}),
        ({"null_us": 1.25}, {"null kernel"}),  # the engine does not see a kernel
        ({"null_us": 40.0}, {"null kernel"}),
        ({"curve": 0.8}, {"copy line"}),  # the smallest copy comes from the cache
        ({"start_us": 30.0}, {"copy of nothing", "linearity"}),
        ({"gbps": 9600.0}, {"copy bandwidth"}),  # the clock is twice too slow
        ({"stays_warm": True}, {"coldness"}),  # the flush flushes nothing
        ({"warm": 1.0}, {"control: warm buffer"}),  # the probe would not show a warm cache
        ({"calls_counted": False}, {"linearity"}),  # the last two of four calls are outside the span
        ({"gap_us": 1.0}, {"linearity"}),
        ({"deaf": True}, {"planted +1%", "planted +2%"}),
        ({"heard": 0.3}, {"planted +1%", "planted +2%"}),  # 1 % is read as 0.3 %
        ({"second_place": 1.01}, {"A/A", "planted +1%"}),
        ({"profiler": lambda us: 0.95 * us}, {"events against profiler"}),
        ({"profiler": lambda us: us + 1.01}, {"events' own share"}),  # a span longer than what holds it
        ({"profiler": lambda us: us - 11.0}, {"events' own share"}),
    ],
    ids=lambda named: "+".join(sorted(named)),
)
def test_lying_device_fails_the_right_check(lies, caught):
    assert failed(lying(**{"start_us": 0.001} | lies)) == caught


def scattering(sd, seed=4, **lies):
    """A machine whose samples scatter independently."""
    machine, rng = lying(start_us=0.001, **lies), random.Random(seed)
    exact = machine.device._span_us
    machine.device._span_us = lambda name, run: exact(name, run) * (1 + rng.gauss(0, sd))
    return machine


def test_zero_read_as_nearly_one_percent_fails():
    """An A/A pair that reads nearly one per cent fails, and so does the planted one per cent."""
    assert failed(scattering(0.003, second_place=1.008)) == {"A/A", "planted +1%"}


def test_check_that_cannot_be_made_does_not_pass():
    """Without kernels and without a profiler its detail says why."""
    machine = lying(start_us=0.001, null_kernel=lambda: None, profiler=None)
    budget, checks = machine.tested()
    absent = {check.name: worded(check.detail) for check in checks if check.passed is None}
    assert absent == {
        "null kernel": "there are no kernels here",
        "events against profiler": "there is no profiler of kernels here",
    }
    assert (budget.null_us, budget.event_offset_us) == (None, None)


def test_an_engine_that_measures_nothing_passes_nothing():
    """Every block is void: only what the profiler says is left."""
    budget, checks = Machine(readings=[SensorReading(throttled=("power brake",))]).tested()
    assert {check.name for check in checks if check.passed} <= {"events' own share", "events against profiler"}
    assert not any(check.passed is None for check in checks)
    assert (budget.t0_us, budget.copy_gbps) == (math.inf, None)


def test_a_host_that_is_late_fails_the_queue_proof():
    machine = Machine(host_us={"probe": math.inf})
    machine.start_us = 0.001
    assert failed(machine) == {"queue proof"}


def test_copies_that_take_no_longer_the_larger_they_are_fail():
    machine = lying(start_us=0.001)
    machine.copies = lambda size, count=1: machine._candidate(f"{count} copies of {size}", count * 10 - 1e-12 * size)
    assert failed(machine) == {"copy line"}
