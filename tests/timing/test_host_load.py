import pytest

from harness.timing import host_load
from harness.timing.host_load import CpuTimes, HostLoad, busy_seconds, share_of_others

STAT = """cpu  300 0 100 700 50 5 5 10 0 0
cpu0 100 10 50 700 50 5 5 10 99 99
cpu1 200 0 50 0 0 0 0 0 0 0
intr 12345 6 7
"""


def test_busy_seconds_of_the_allowed_cpus(monkeypatch):
    monkeypatch.setattr(host_load.os, "sysconf", lambda name: 100)
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
    monkeypatch.setattr(host_load, "PROC_STAT", tmp_path / "absent")
    assert HostLoad().since_last_reading() is None
