import random

import pytest
import torch
from triton import knobs
from triton.compiler.compiler import LazyDict

from harness.records.schema import Kernel
from harness.timing.launches import REPETITIONS, attach, time_launches
from tests.fake_device import FakeDevice


def attached(kernels, launches):
    """What each kernel of these names is given; the profiler's own figures stay."""
    known = [Kernel(name=name, median_us=10.0 + place, start_us=float(place)) for place, name in enumerate(kernels)]
    launched = attach(known, launches)
    assert [kernel.model_copy(update={"event_us": None}) for kernel in launched] == known
    return [(kernel.name, kernel.event_us) for kernel in launched]


def test_each_kernel_gets_its_own_time():
    assert attached(["rows", "columns"], [("rows", 20.1234), ("columns", 5.0)]) == [("rows", 20.123), ("columns", 5.0)]


def test_other_activities_have_no_launch_config():
    kernels = ["memset", "rows", "memcpy", "columns", "cast"]
    assert attached(kernels, [("rows", 20.0), ("columns", 5.0)]) == [
        ("memset", None),
        ("rows", 20.0),
        ("memcpy", None),
        ("columns", 5.0),
        ("cast", None),
    ]


@pytest.mark.parametrize(
    "launches",
    [
        [("rows", 20.0), ("columns", 5.0), ("rows", 1.0)],
        [("rows", 20.0), ("other", 5.0)],
        [("other", 5.0), ("rows", 20.0), ("columns", 5.0)],
        [("columns", 5.0), ("rows", 20.0)],
    ],
    ids=["one too many", "unknown at the end", "unknown first", "another order"],
)
def test_unmatched_launch_gives_no_times(launches):
    assert attached(["rows", "columns"], launches) == [("rows", None), ("columns", None)]


class FakeEvent:
    """An event whose time is how many were recorded before it in this session, squared, in milliseconds."""

    recorded = 0

    def __init__(self, enable_timing):
        assert enable_timing
        self.ms = None

    def record(self):
        self.ms = FakeEvent.recorded**2
        FakeEvent.recorded += 1

    def elapsed_time(self, end):
        return float(end.ms - self.ms)


@pytest.fixture
def hooks(monkeypatch):
    """Triton's own hooks, and events that need no GPU; the hooks are as they were when the test is over."""
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(FakeEvent, "recorded", 0)
    launched = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    before = [list(hook.calls) for hook in launched]
    yield launched
    assert [hook.calls for hook in launched] == before


def launch(*names):
    """What Triton does around its launches."""
    for name in names:
        metadata = LazyDict({"name": name, "stream": 0})
        knobs.runtime.launch_enter_hook(metadata)
        knobs.runtime.launch_exit_hook(metadata)


def timed(device, returns, **more):
    return time_launches(device.candidate("one", returns, **more), device, "clean", random.Random(0))


def test_each_launch_is_timed_between_two_events(hooks):
    # Events 4n, ..., 4n + 3 of the n-th run: the first launch takes 8n + 1 ms, the second 8n + 5 ms.
    assert REPETITIONS == 5
    assert timed(FakeDevice(), lambda: launch("rows", "columns")) == [("rows", 17_000.0), ("columns", 21_000.0)]
    assert FakeEvent.recorded == 4 * REPETITIONS


def test_only_launches_of_the_run_are_recorded(hooks):
    """Launches of the restore and after the run are left out."""
    device = FakeDevice()
    answer = device.elapsed_us

    def elapsed_us():
        launch("late")
        return answer()

    device.elapsed_us = elapsed_us
    launched = timed(device, lambda: launch("rows"), restore=lambda: launch("restore"))
    assert [name for name, _ in launched] == ["rows"]


@pytest.mark.parametrize(
    "runs",
    [
        [["a"], ["a"], ["a"], ["a"], ["a", "b"]],
        [["a"], ["b"], ["a"], ["a"], ["a"]],
        [["a", "b"], ["a", "b"], ["b", "a"], ["a", "b"], ["a", "b"]],
        [[], ["a"], ["a"], ["a"], ["a"]],
    ],
    ids=["one more", "another name", "another order", "none at first"],
)
def test_varying_launches_are_not_reported(hooks, runs):
    left = list(runs)
    assert timed(FakeDevice(), lambda: launch(*left.pop(0))) == []
    assert left == []
