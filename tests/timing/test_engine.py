import random
from collections import Counter
from statistics import median

import pytest

from harness.devices.nvml import SensorReading
from harness.records.reasons import Reason
from harness.timing.engine import (
    LONGEST_HOLD_US,
    SHORTEST_HOLD_US,
    WARM_UP_SAMPLES,
    CandidateError,
    measure,
    take_sample,
)
from harness.timing.stopping import StoppingRule
from tests.fake_device import FakeDevice

ONE_SAMPLE = ["place", "flush clean", "hold 100", "start", "run A", "end", "query", "elapsed"]


def blocks(count):
    """A rule that stops after this many blocks and for no other reason."""
    return StoppingRule(min_blocks=count, max_blocks=count, half_width=-1.0, budget_s=1e9)


def timed(device, names, count=6, seed=0, **more):
    candidates = [device.candidate(name) for name in names]
    return measure(device, candidates, blocks(count), "clean", random.Random(seed), **more)


def timed_order(device, names):
    """The names that ran, block by block, without the warm-up."""
    order = device.samples()[WARM_UP_SAMPLES * len(names) :]
    return [tuple(order[i : i + len(names)]) for i in range(0, len(order), len(names))]


def test_one_sample_is_taken_in_this_order():
    device = FakeDevice(lambda name, run: 12.5)
    sample = take_sample(device, device.candidate("A"), "clean", random.Random(0))
    assert device.events == ONE_SAMPLE
    assert (sample.us, sample.void) == (12.5, None)


def test_overwritten_inputs_are_restored_first():
    """The restore comes before the inputs are placed and before the flush."""
    device = FakeDevice()
    candidate = device.candidate("A", restore=lambda: device.events.append("restore"))
    take_sample(device, candidate, "clean", random.Random(0))
    assert device.events == ["restore", *ONE_SAMPLE]


def test_hold_doubles_until_host_is_kept_out():
    device = FakeDevice(host_us={"A": 350.0})
    candidate = device.candidate("A")
    sample = take_sample(device, candidate, "clean", random.Random(0))
    again = [event.replace("100", hold) for hold in ("100", "200", "400") for event in ONE_SAMPLE]
    assert device.events == again
    assert (candidate.hold_us, candidate.proven) == (400.0, True)
    assert sample.us == 10.0


def test_backward_without_queue_proof_is_marked():
    device = FakeDevice(host_us={"A": 1e9})
    slow, fast = device.candidate("A"), device.candidate("B")
    measurement = measure(device, [slow, fast], blocks(5), "clean", random.Random(0))
    assert (slow.proven, slow.hold_us) == (False, LONGEST_HOLD_US)
    assert (fast.proven, fast.hold_us) == (True, SHORTEST_HOLD_US)
    assert [len(samples) for samples in measurement.samples_us.values()] == [5, 5]
    assert not measurement.voided
    holds = [float(event.split()[1]) for event in device.events if event.startswith("hold")]
    assert max(holds) == LONGEST_HOLD_US


def test_allocator_growth_voids_the_whole_block():
    """The samples of the candidates stay aligned by block."""
    third_block = WARM_UP_SAMPLES + 2
    device = FakeDevice(lambda name, run: run + 0.5, grows={("B", third_block)})
    measurement = timed(device, "AB", count=6)
    assert measurement.blocks == [0, 1, 3, 4, 5]
    assert measurement.voided == {Reason("allocator_grew"): 1}
    kept = [WARM_UP_SAMPLES + block + 0.5 for block in measurement.blocks]
    assert measurement.samples_us == {"A": kept, "B": kept}
    assert measurement.attempted == 6


def test_candidate_that_raises_is_named():
    def fail():
        raise RuntimeError("no kernel image")

    device = FakeDevice()
    candidates = [device.candidate("A"), device.candidate("B", returns=fail)]
    with pytest.raises(CandidateError) as caught:
        measure(device, candidates, blocks(3), "clean", random.Random(0))
    assert caught.value.candidate == "B"
    assert str(caught.value.__cause__) == "no kernel image"


def test_block_holds_each_candidate_in_random_order():
    device = FakeDevice()
    timed(device, "ABCD", count=50)
    order = timed_order(device, "ABCD")
    assert len(order) == 50
    assert all(sorted(block) == list("ABCD") for block in order)
    first = Counter(block[0] for block in order)
    assert set(first) == set("ABCD")
    assert max(first.values()) < 25  # no candidate has a place of its own


def test_seed_determines_the_order():
    orders = []
    for seed in (3, 3, 4):
        device = FakeDevice()
        timed(device, "ABC", count=10, seed=seed)
        orders.append(device.samples())
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_time_budget_starts_after_the_warm_up():
    """The budget is counted on the device's clock."""
    device = FakeDevice(tick_s=2.0)
    rule = StoppingRule(min_blocks=3, max_blocks=1000, half_width=-1.0, budget_s=19.0)  # never narrow enough
    measurement = measure(device, [device.candidate(name) for name in "AB"], rule, "clean", random.Random(0))
    # Read once at the beginning, then before each block: 2 s, 4 s, ... and 20 s before the tenth.
    assert len(measurement.blocks) == 9


def test_drift_cancels_inside_blocks():
    """Timing one candidate after the other would read the drift as a difference."""
    growth, true_ratio, count = 1.01, 1.1, 40
    cost = {"A": 100.0 * true_ratio, "B": 100.0}
    device = FakeDevice(lambda name, run: cost[name] * growth ** device.runs.total())
    samples_us = timed(device, "AB", count=count).samples_us
    # Two neighbours differ by one step of drift at most, in either direction.
    assert true_ratio / growth <= median_ratio(samples_us["A"], samples_us["B"]) <= true_ratio * growth
    first = [cost["A"] * growth**sample for sample in range(count)]
    second = [cost["B"] * growth ** (count + sample) for sample in range(count)]
    assert median_ratio(first, second) < 0.8


def median_ratio(first_us, other_us):
    return median(a / b for a, b in zip(first_us, other_us, strict=True))


FREE = SensorReading(sm_clock_mhz=1980)
HOT = SensorReading(throttled=("software thermal slowdown",))
TOO_HOT = Reason("throttled", {"by": "software thermal slowdown"})


@pytest.mark.parametrize(
    ("readings", "kept"),  # the first reading is before block 0, the next one after it
    [
        ([FREE] * 7, [0, 1, 2, 3, 4, 5]),
        ([HOT, *[FREE] * 6], [1, 2, 3, 4, 5]),
        ([FREE, HOT, *[FREE] * 5], [2, 3, 4, 5]),
        ([FREE, FREE, FREE, HOT, FREE, FREE, FREE], [0, 1, 4, 5]),
        ([FREE, FREE, HOT, HOT, FREE, FREE, FREE], [0, 4, 5]),
        ([*[FREE] * 6, HOT], [0, 1, 2, 3, 4]),
        ([HOT] * 7, []),
    ],
)
def test_throttling_at_either_end_voids_the_block(readings, kept):
    device = FakeDevice(lambda name, run: run + 0.5, readings=readings)
    measurement = timed(device, "AB", count=6)
    assert measurement.blocks == kept
    samples_us = [WARM_UP_SAMPLES + block + 0.5 for block in kept]
    assert measurement.samples_us == {"A": samples_us, "B": samples_us}
    assert measurement.voided == ({TOO_HOT: 6 - len(kept)} if len(kept) < 6 else {})
    assert measurement.attempted == 6
    assert len(measurement.readings) == 6


def test_device_is_read_only_between_blocks():
    device = FakeDevice()
    answer = device.read_sensors

    def read_sensors():
        device.events.append("sensors")
        return answer()

    device.read_sensors = read_sensors
    timed(device, "AB", count=3)
    of_interest = [event.split()[0] for event in device.events if event == "sensors" or event.startswith("run")]
    assert of_interest == ["run"] * 2 * WARM_UP_SAMPLES + ["sensors"] + ["run", "run", "sensors"] * 3
