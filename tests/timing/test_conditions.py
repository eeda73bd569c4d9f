import pytest

from harness.cases import NormCase
from harness.devices.nvml import THROTTLE_REASONS, SensorReading
from harness.records.schema import ConditionsRecord
from harness.timing.conditions import STEADY, record, void_cause
from tests.wording import worded

CASE = NormCase("rms", 16, 64)
FREE = SensorReading(1980, 3201, 400.0, 60, (), 1)
VOIDING = sorted(set(THROTTLE_REASONS.values()) - STEADY)


def throttled(*reasons):
    return SensorReading(throttled=reasons)


def recorded(*readings):
    return record(CASE, "g7", 2, readings)


def test_every_reason_but_a_power_cap_voids():
    assert VOIDING == ["hardware slowdown", "hardware thermal slowdown", "power brake", "software thermal slowdown"]
    assert {"power cap"} == STEADY


@pytest.mark.parametrize("reason", VOIDING)
def test_throttling_at_either_end_voids(reason):
    cause = f"throttled ({reason})"
    assert worded(void_cause(throttled(reason), FREE)) == cause
    assert worded(void_cause(FREE, throttled(reason))) == cause
    assert worded(void_cause(throttled(reason), throttled(reason))) == cause
    assert void_cause(FREE, FREE) is None


def test_power_cap_voids_nothing():
    capped = throttled("power cap")
    assert void_cause(capped, capped) is void_cause(FREE, capped) is void_cause(capped, FREE) is None
    assert worded(void_cause(capped, throttled("power cap", "power brake"))) == "throttled (power brake)"


def test_readings_are_recorded_by_quantity():
    assert recorded(FREE, SensorReading(1965, 3200, 412.5, 61, (), 1)) == ConditionsRecord(
        case=CASE,
        group="g7",
        process=2,
        sm_clock_mhz=[1980, 1965],
        memory_clock_mhz=[3201, 3200],
        power_w=[400.0, 412.5],
        temperature_c=[60, 61],
        throttled={},
        other_processes=0,
    )


@pytest.mark.parametrize(
    ("processes", "others"), [((0, 0), 0), ((1, 1), 0), ((1, 3, 2), 2), ((0, 2), 1), ((2, 0), 1), ((), 0)]
)
def test_other_processes_do_not_count_this_one(processes, others):
    assert recorded(*(SensorReading(processes=count) for count in processes)).other_processes == others
