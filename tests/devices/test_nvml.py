import sys

import pytest

from harness.devices import nvml
from harness.devices.nvml import Gpu, SensorReading
from tests.fake_nvml import FakeNvml

WHOLE = SensorReading(1980, 3201, 412.345, 61, ("power cap",), 2)
UNANSWERED = {  # the fields of a reading without each query
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz": None, "memory_clock_mhz": None},
    "nvmlDeviceGetPowerUsage": {"power_w": None},
    "nvmlDeviceGetTemperature": {"temperature_c": None},
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttled": ()},
    "nvmlDeviceGetComputeRunningProcesses": {"processes": 0},
}


def installed(monkeypatch, **card):
    fake = FakeNvml(**card)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def read(bits):
    return Gpu(FakeNvml(bits=bits), "card 5").read()


def test_a_reading_has_every_quantity_in_the_units_of_its_name():
    assert Gpu(FakeNvml(bits=0x04, pids=(7, 8)), "card 5").read() == WHOLE


@pytest.mark.parametrize("query", UNANSWERED)
@pytest.mark.parametrize("why", ["refused", "absent"])
def test_failed_query_costs_only_its_quantity(query, why):
    fake = FakeNvml(bits=0x04, pids=(7, 8), refused=(query,) if why == "refused" else ())
    if why == "absent":
        setattr(fake, query, None)
    fields = {name: getattr(WHOLE, name) for name in WHOLE.__dataclass_fields__} | UNANSWERED[query]
    assert Gpu(fake, "card 5").read() == SensorReading(**fields)


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x000, ()),
        (0x010, ()),  # boosted in step with other cards
        (0x004 | 0x020, ("power cap", "software thermal slowdown")),
        (0x008 | 0x040 | 0x001, ("hardware slowdown", "hardware thermal slowdown")),
    ],
)
def test_throttle_bits_are_named(bits, names):
    assert read(bits).throttled == names


def test_the_bits_are_those_of_the_bindings():
    import pynvml

    named = {
        "SwPowerCap": "power cap",
        "HwSlowdown": "hardware slowdown",
        "SwThermalSlowdown": "software thermal slowdown",
        "HwThermalSlowdown": "hardware thermal slowdown",
        "HwPowerBrakeSlowdown": "power brake",
    }
    bits = {getattr(pynvml, f"nvmlClocksEventReason{word}"): reason for word, reason in named.items()}
    assert bits == nvml.THROTTLE_REASONS


@pytest.mark.parametrize("uuid", ["1234", "GPU-1234"])
def test_card_is_found_by_uuid_with_or_without_prefix(monkeypatch, uuid):
    fake = installed(monkeypatch)
    assert nvml.find(uuid) == Gpu(fake, "card 5")


def test_the_only_card_is_the_card_whatever_its_uuid(monkeypatch):
    fake = installed(monkeypatch, uuid="GPU-other", count=1)
    assert nvml.find("1234") == nvml.find(None) == Gpu(fake, "card 0")


@pytest.mark.parametrize("uuid", ["1234", None])
def test_of_several_cards_none_is_taken_for_another(monkeypatch, uuid):
    fake = installed(monkeypatch, uuid="GPU-other", bits=0x04, pids=(7,))
    gpu = nvml.find(uuid)
    assert gpu == Gpu(fake, None)
    assert gpu.read() == SensorReading()
    assert (gpu.process_ids(), gpu.power_limit_w(), gpu.driver()) == ([], None, "580.1")


def test_without_bindings_there_is_no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.find("1234") is None
