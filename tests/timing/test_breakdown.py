import random
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from harness.records.reasons import Reason
from harness.records.schema import Kernel, KernelTotals
from harness.timing.breakdown import REPETITIONS, SPINS, Activity, Breakdown, assign, breakdown
from harness.timing.cuda import CudaDevice
from harness.timing.engine import Candidate
from tests.fake_device import FakeDevice
from tests.wording import worded

SPIN = "void at::cuda::spin_kernel(long)"
FIRST_END_US, LAST_START_US = 200.0, 300.0  # of the markers, after the begin of the run
RUN_US = 1000.0  # far from the next one


class Session:
    """What a profiler would hand over: launches are numbered as they are made, times are after the run's begin."""

    def __init__(self):
        self.activities = []
        self._launches = count(100)
        self._begin_us = 5000.0

    def run(self, *kernels):
        """A restore, a flush and a hold, then the kernels (name, start, length) between two markers."""
        self._launch("restore dy", 10.0, 3.0)
        self._launch("fill (flush)", 13.0, 20.0)
        self._launch(SPIN, 33.0, 150.0)
        self._launch(SPIN, FIRST_END_US - 1.0, 1.0)
        for name, start_us, us in kernels:
            self._launch(name, start_us, us)
        self._launch(SPIN, LAST_START_US, 1.0)
        self._begin_us += RUN_US
        return self

    def _launch(self, name, start_us, us):
        self.activities.append(Activity(name, self._begin_us + start_us, us, next(self._launches)))

    @property
    def spins(self):
        return [place for place, activity in enumerate(self.activities) if activity.name == SPIN]


def broken_down_runs(*repetitions, events_us=None):
    """The breakdown of one candidate whose runs launch these kernels."""
    session = Session()
    for kernels in repetitions:
        session.run(*kernels)
    return assign({"one": events_us or [50.0] * len(repetitions)}, session.activities)["one"]


def listed(broken_down):
    return [(kernel.name, kernel.start_us, kernel.median_us) for kernel in broken_down.kernels]


def totals(broken_down):
    return tuple(getattr(broken_down.totals, name) for name in ("sum_us", "union_us", "span_us", "event_us"))


def two_candidates():
    session = Session()
    for _ in range(REPETITIONS):
        session.run(("backward", 205.0, 10.0))
    for _ in range(REPETITIONS):
        session.run(("rows", 206.0, 20.0), ("columns", 228.0, 5.0))
    return session, {"one": [12.0] * REPETITIONS, "two": [30.0] * REPETITIONS}


def test_kernels_between_markers_go_to_the_candidate():
    session, events_us = two_candidates()
    assert assign(events_us, session.activities) == {
        "one": Breakdown(
            [Kernel(name="backward", median_us=10.0, start_us=0.0)],
            KernelTotals(sum_us=10.0, union_us=10.0, span_us=10.0, event_us=12.0, lead_us=5.0),
        ),
        "two": Breakdown(
            [Kernel(name="rows", median_us=20.0, start_us=0.0), Kernel(name="columns", median_us=5.0, start_us=22.0)],
            KernelTotals(sum_us=25.0, union_us=25.0, span_us=27.0, event_us=30.0, lead_us=6.0),
        ),
    }


@pytest.mark.parametrize(
    ("spans", "expected"),  # begin and length of each kernel; sum, union and span of all
    [
        ([(205.0, 10.0)], (10.0, 10.0, 10.0)),
        ([(205.0, 10.0), (215.0, 5.0)], (15.0, 15.0, 15.0)),  # back to back
        ([(205.0, 10.0), (217.0, 5.0)], (15.0, 15.0, 17.0)),  # a gap of 2
        ([(205.0, 10.0), (212.0, 8.0)], (18.0, 15.0, 15.0)),  # a dependent launch: 3 shared
        ([(205.0, 20.0), (210.0, 5.0)], (25.0, 20.0, 20.0)),  # one inside the other
        ([(205.0, 20.0), (210.0, 5.0), (220.0, 10.0)], (35.0, 25.0, 25.0)),  # the one inside does not set back
        ([(205.0, 20.0), (210.0, 5.0), (230.0, 10.0)], (35.0, 30.0, 35.0)),  # nor after a gap of 5
        ([(205.0, 10.0), (205.0, 10.0)], (20.0, 10.0, 10.0)),  # at once
        ([(215.0, 5.0), (205.0, 7.0)], (12.0, 12.0, 15.0)),  # the second launch begins first, on another stream
        ([(205.0, 4.0), (210.0, 4.0), (215.0, 4.0)], (12.0, 12.0, 14.0)),  # two gaps of 1
    ],
)
def test_sum_union_span_and_gaps_by_hand(spans, expected):
    broken_down = broken_down_runs([(f"k{place}", *span) for place, span in enumerate(spans)])
    assert totals(broken_down) == (*expected, 50.0)
    assert [kernel.median_us for kernel in broken_down.kernels] == [us for _, us in spans]
    first_us = min(start_us for start_us, _ in spans)
    assert [kernel.start_us for kernel in broken_down.kernels] == [start_us - first_us for start_us, _ in spans]
    assert (worded(broken_down.note), worded(broken_down.escaped)) == (None, None)


@pytest.mark.parametrize("lost", [0, SPINS, 2 * SPINS * REPETITIONS - 1])
def test_lost_marker_makes_every_candidate_unknown(lost):
    session, events_us = two_candidates()
    del session.activities[session.spins[lost]]
    unknown = Breakdown(None, note=Reason("lost_records", {"markers": 41, "expected": 42}))
    assert assign(events_us, session.activities) == {"one": unknown, "two": unknown}


@pytest.mark.parametrize(
    ("repetitions", "note"),
    [
        ([["a"], ["a", "b"], ["a"]], "the kernels differ between repetitions (1, 2, 1 launched)"),
        ([["a"], ["a"], ["b"]], "the kernels differ between repetitions (1, 1, 1 launched)"),
        ([["a"], []], "the kernels differ between repetitions (1, 0 launched)"),
        ([["a", "a", "b"], ["a", "b", "b"]], "the kernels differ between repetitions (3, 3 launched)"),
        ([["a", "b"], ["b", "a"]], "the kernels are launched in another order from repetition to repetition"),
    ],
)
def test_only_agreeing_kernels_are_reported(repetitions, note):
    session = Session()
    for names in repetitions:
        session.run(*((name, 205.0 + 10 * place, 1.0) for place, name in enumerate(names)))
    session.run(("c", 205.0, 3.0))
    broken_down = assign({"one": [1.0] * len(repetitions), "two": [4.0]}, session.activities)
    assert (broken_down["one"].kernels, worded(broken_down["one"].note)) == (None, note)
    assert listed(broken_down["two"]) == [("c", 0.0, 3.0)]


@pytest.mark.parametrize(
    ("start_us", "us", "escapes"),
    [
        (205.0, 10.0, False),
        (200.0, 100.0, False),  # from the one marker to the other
        (199.5, 10.0, False),  # half a microsecond is the clock's
        (199.4, 10.0, True),
        (120.0, 10.0, True),  # beside the hold
        (120.0, 300.0, True),
        (290.0, 10.5, False),
        (290.0, 10.6, True),
        (301.0, 5.0, True),  # after the last marker began
        (800.0, 5.0, True),
    ],
)
def test_work_outside_the_markers_has_escaped(start_us, us, escapes):
    honest = ("rows", 210.0, 20.0)
    broken_down = broken_down_runs([honest, ("side", start_us, us)])
    why = "work on another stream runs outside the timed span: side"
    assert worded(broken_down.escaped) == (why if escapes else None)
    assert [kernel.name for kernel in broken_down.kernels] == ["rows", "side"]  # and is listed all the same


def profiling(monkeypatch, session):
    """A profiler that hands over a session, the host's calls among its launches."""
    asked = []

    class Profile:
        def __init__(self, activities, acc_events):
            asked.append((activities, acc_events))

        def __enter__(self):
            return self

        def __exit__(self, *raised):
            asked.append("ended")

        def events(self):
            return events

    def event(activity, device_type):
        span = SimpleNamespace(start=activity.start_us, elapsed_us=lambda: activity.us)
        return SimpleNamespace(name=activity.name, id=activity.launch, time_range=span, device_type=device_type)

    events = [event(each, kind) for each in session.activities for kind in (DeviceType.CPU, DeviceType.CUDA)]
    monkeypatch.setattr(torch.profiler, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: asked.append("waited"))
    return asked


def test_one_profiler_session_records_all_runs(monkeypatch):
    """Calls on the host are not among the activities."""
    session, events_us = two_candidates()
    asked = profiling(monkeypatch, session)
    device = FakeDevice(lambda name, run: events_us[name][run])
    broken_down = breakdown([device.candidate(name) for name in events_us], device, "clean", random.Random(0))
    assert broken_down == assign(events_us, session.activities)
    assert asked == ["waited", ([ProfilerActivity.CUDA], True), "waited", "ended"]
    assert device.samples() == ["one"] * REPETITIONS + ["two"] * REPETITIONS


def test_profiled_run_is_a_sample_between_markers(monkeypatch):
    """A profiled run is taken as a sample is, but behind a longer hold."""
    profiling(monkeypatch, Session())
    device = FakeDevice()
    candidate = device.candidate("one", restore=lambda: device.events.append("restore"), hold_us=250.0)
    assert breakdown([candidate], device, "dirty", random.Random(0))["one"].kernels is None
    order = "restore, place, flush dirty, hold 1000, hold 1, start, run one, end, hold 1, elapsed"
    assert device.events == REPETITIONS * order.split(", ")


# On a GPU: what a profiler there records.


@pytest.fixture
def device():
    return CudaDevice(64 << 20, torch.empty(1 << 20, device="cuda"))


def profiled(device, run):
    return breakdown([Candidate("one", run)], device, "clean", random.Random(0))["one"]


@pytest.mark.gpu
def test_unawaited_side_stream_work_escapes(device):
    x, side = torch.ones(64 << 20, device="cuda"), torch.cuda.Stream()

    def run():
        with torch.cuda.stream(side):
            x.mul_(2.0)

    assert worded(profiled(device, run).escaped).startswith("work on another stream runs outside the timed span: ")


@pytest.mark.gpu
def test_awaited_side_stream_work_does_not_escape(device):
    x, side = torch.ones(1 << 20, device="cuda"), torch.cuda.Stream()

    def run():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.mul_(2.0)
        torch.cuda.current_stream().wait_stream(side)

    broken_down = profiled(device, run)
    assert (worded(broken_down.note), worded(broken_down.escaped)) == (None, None)
    assert len(broken_down.kernels) == 1


@pytest.mark.gpu
def test_span_of_elementwise_kernel_agrees_with_events(device):
    x = torch.ones(64 << 20, device="cuda")
    broken_down = profiled(device, lambda: x.mul_(2.0))
    assert len(broken_down.kernels) == 1
    assert broken_down.totals.sum_us == broken_down.totals.union_us == broken_down.totals.span_us
    assert 0 < broken_down.totals.event_us - broken_down.totals.span_us < 0.1 * broken_down.totals.span_us
