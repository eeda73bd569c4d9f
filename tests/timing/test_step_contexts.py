"""The order of events in every context, and the faults of a context that its proofs find."""

import random

import pytest

from harness.devices.capture import Captured
from harness.records.reasons import Reason
from harness.timing.engine import measure, take_sample
from harness.timing.step_contexts import CALLS, OUTLASTS_US, CompetingKernel, HostClock, Preceded, repeated, replayed
from harness.timing.stopping import StoppingRule
from tests.fake_device import FakeDevice
from tests.wording import worded

THREE = StoppingRule(min_blocks=3, max_blocks=3, half_width=-1.0, budget_s=1e9)


class FakeHolder:
    """Records what it is told in a device's events; `states` are how it looks after each sample, the last for ever."""

    multiprocessors = 132

    def __init__(self, events, states=("running",), starts=True):
        self.events, self.states, self.starts = events, list(states), starts

    def occupy(self, programs, for_us):
        self.events.append(f"occupy {programs} for {for_us:g}")

    def started(self):
        self.events.append("started")
        return self.starts

    def state(self):
        self.events.append("look at it")
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def release(self):
        self.events.append("release")


def sample(device, candidate):
    return take_sample(device, candidate, "clean", random.Random(0))


def beside(device, programs=8, alone_us=20.0, **holder):
    return CompetingKernel(device, FakeHolder(device.events, **holder), programs, alone_us)


def test_hot_dy_is_written_just_before_the_start():
    device = FakeDevice()
    hot = Preceded(device, lambda: device.events.append("write dy"))
    assert sample(hot, device.candidate("A")).us == 10.0
    assert ", ".join(device.events) == ("place, flush clean, hold 100, write dy, start, run A, end, query, elapsed")


def test_competing_kernel_encloses_the_span():
    device = FakeDevice()
    taken = sample(beside(device), device.candidate("A"))
    assert (taken.us, taken.void) == (10.0, None)
    assert ", ".join(device.events) == (
        "place, flush clean, occupy 8 for 3100, hold 100, started, start, run A, end, query, elapsed, "
        "look at it, release"
    )


def test_competing_kernel_outlasts_hold_and_backward():
    device = FakeDevice(host_us={"A": 150.0})
    sample(beside(device, alone_us=500.0), device.candidate("A"))
    assert [event for event in device.events if event.startswith("occupy")] == [
        "occupy 8 for 10100",
        "occupy 8 for 10200",
    ]
    assert device.events.count("release") == 2


@pytest.mark.parametrize(
    ("holder", "us", "void"),
    [
        ({"states": ["ended early"]}, 10.0, "the kernel beside ended early"),
        ({"states": ["over"]}, 10.0, "the kernel beside ended early"),  # its time was up, and nobody waited
        ({"states": ["ended early"]}, OUTLASTS_US, "the kernel beside ended early"),
        ({"starts": False}, 10.0, "the kernel beside did not start"),
        ({"states": ["over"]}, OUTLASTS_US, None),  # the backward waited for it: that is what it costs
        ({"states": ["running"]}, 2 * OUTLASTS_US, None),
    ],
)
def test_sample_without_the_competing_kernel_is_void(holder, us, void):
    device = FakeDevice(lambda name, run: us)
    assert worded(sample(beside(device, **holder), device.candidate("A")).void) == void
    assert device.events[-1] == "release"


def test_one_early_end_voids_its_block():
    device = FakeDevice()
    warmed = 2 * 3
    states = [*["running"] * (warmed + 2), "ended early", *["running"] * 3]
    measurement = measure(
        beside(device, states=states), [device.candidate(n) for n in "AB"], THREE, "clean", random.Random(0)
    )
    assert measurement.blocks == [0, 2]
    assert measurement.voided == {Reason("beside_ended_early"): 1}


def clock(device, *readings_us):
    readings = iter(readings_us)
    return lambda: device.events.append("look at the clock") or int(next(readings) * 1e3)


def test_host_is_timed_behind_the_hold():
    device = FakeDevice(host_us={"A": 50.0})
    timed = HostClock(device, clock(device, 1000.0, 1000.0 + 18.0 * CALLS))
    taken = sample(timed, repeated(device.candidate("A")))
    assert taken.us == 18.0
    timed_alone = ["start", "look at the clock", *["run A"] * CALLS, "look at the clock", "end"]
    assert device.events == ["place", "hold 100", *timed_alone, "query", "elapsed"]


def test_a_replay_is_timed_in_the_order_of_a_call():
    device = FakeDevice()
    captured = Captured(lambda: device.events.append("replay"), "answer", None, lambda: "answer")
    candidate = replayed(
        device.candidate("A", restore=lambda: device.events.append("restore")),
        captured,
        lambda answer: device.events.append(f"spoil {answer}"),
    )
    answers = []
    take_sample(device, candidate, "clean", random.Random(0), answers.append)
    assert answers == ["answer"]
    order = "restore, spoil answer, place, flush clean, hold 100, start, replay, end, query, elapsed"
    assert ", ".join(device.events) == order
