import pytest

from harness.cases import NormCase
from harness.devices.nvml import THROTTLE_REASONS, SensorReading
from harness.records.schema import ConditionsRecord
from harness.timing import conditions
from harness.timing.conditions import STEADY, CpuTimes, HostLoad, busy_seconds, record, share_of_others, void_cause
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


STAT = """cpu  300 0 100 700 50 5 5 10 0 0
cpu0 100 10 50 700 50 5 5 10 99 99
cpu1 200 0 50 0 0 0 0 0 0 0
intr 12345 6 7
"""


def test_busy_seconds_of_the_allowed_cpus(monkeypatch):
    monkeypatch.setattr(conditions.os, "sysconf", lambda name: 100)
    assert busy_seconds(STAT, {0}) == pytest.approx(1.8)
    assert busy_seconds(STAT, {0, 1}) == pytest.approx(4.3)
    assert busy_seconds(STAT, {7}) == 0.0


@pytest.mark.parametrize(
    ("busy_s", "own_s", "share"),
    [(2.0, 2.0, 0.0), (1.0, 1.0, 0.0), (2.0, 0.5, 0.75), (2.0, 0.0, 1.0), (0.0, 0.1, 0.0), (9.0, 0.0, 1.0)],
)
def test_share_of_other_processes(busy_s, own_s, share):
    before = CpuTimes(at_s=10.0, busy_s=100.0, own_s=5.0, cpus=2)
    assert share_of_others(before, CpuTimes(11.0, 100.0 + busy_s, 5.0 + own_s, 2)) == share


def test_a_system_that_says_nothing_has_no_load(monkeypatch, tmp_path):
    monkeypatch.setattr(conditions, "PROC_STAT", tmp_path / "absent")
    assert HostLoad().since_last_reading() is None
