"""The checks of the kernel that holds multiprocessors can fail: with holders and a device that are scripted."""

import pytest

from harness.errors import UnavailableError
from harness.timing import competing_kernel_checks as module
from harness.timing.competing_kernel_checks import CONTROL, OCCUPIED, competing_kernel_checks
from tests.fake_device import FakeDevice
from tests.timing.test_step_contexts import FakeHolder
from tests.wording import worded


class Holders:
    """Makes the holder and then the probe, which finds `free` multiprocessors."""

    def __init__(self, events, free=124, states=("running",), refuses=None):
        self.made = [FakeHolder(events, states), FakeHolder(events)]
        self.refuses = refuses
        for holder in self.made:
            holder.threads, holder.shared_kib = 640, 200
            holder.running = lambda: free
            holder.queue = self._queue

    def __call__(self):
        return self.made.pop(0)

    def _queue(self, programs, looks, **options):
        if self.refuses:
            raise self.refuses
        assert (programs, looks, options) == (132, 0, {"launch_cooperative_grid": True})


@pytest.fixture
def checked(monkeypatch):
    monkeypatch.setattr(module.torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)

    def check(beside_us=2900.0, alone_us=4.0, **scripted):
        device = FakeDevice(lambda name, run: beside_us if "occupy 8 for 3100" in device.events[-9:] else alone_us)
        checks = competing_kernel_checks(device, Holders(device.events, **scripted))
        return {each.name: each for each in checks}

    return check


def test_right_number_of_multiprocessors_passes(checked):
    checks = checked()
    assert checks[OCCUPIED].passed
    assert "a probe found 124 of 132 multiprocessors free" in worded(checks[OCCUPIED].detail)


def test_waiting_launch_is_detected(checked):
    control = checked()[CONTROL]
    assert (control.passed, control.value) == (True, 2900.0)
    assert worded(control.detail).startswith(
        "waits for other kernels: a launch that needs every multiprocessor took 2900 us"
    )


@pytest.mark.parametrize("scripted", [{"free": 126}, {"free": 0}, {"states": ["over", "running"]}])
def test_wrong_number_of_multiprocessors_fails(checked, scripted):
    assert checked(**scripted)[OCCUPIED].passed is False


def test_unseen_wait_fails(checked):
    control = checked(beside_us=20.0)[CONTROL]
    assert control.passed is False
    assert "did not wait" in worded(control.detail)


def test_without_a_competing_kernel_no_check():
    def refuse():
        raise UnavailableError("it does not compile")

    checks = competing_kernel_checks(FakeDevice(), refuse)
    assert [(check.passed, worded(check.detail)) for check in checks] == [(None, "it does not compile")] * 2
