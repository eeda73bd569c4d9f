"""The kernels that a backward launches and their times by the profiler: a separate pass, not used for ratios.

One profiler session serves a case. Every run stands between two spin kernels, the markers; what is launched between
them belongs to the run. The order of launches decides, so that streams and kernel names play no part.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from harness.records.reasons import ESCAPES, Reason
from harness.records.schema import Flush, Kernel, KernelTotals
from harness.timing.engine import Candidate, Device, longer_hold_us, make_ready

REPETITIONS = 7
MARKER = "spin_kernel"  # what torch.cuda._sleep launches, on CUDA and ROCm
MARKER_US = 1.0
SPINS = 3  # a run has three: the hold, and a marker on either side
CLOCK_SLACK_US = 0.5  # resolution of the profiler's stamps: it documents none, so that of events is taken


@dataclass(frozen=True)
class Activity:
    """One thing that the device did: its name, begin and duration in microseconds, and its place among the launches."""

    name: str
    start_us: float
    us: float
    launch: int

    @property
    def end_us(self) -> float:
        return self.start_us + self.us


@dataclass(frozen=True)
class Breakdown:
    """The kernels of one backward in launch order and their totals; `note` says why they are unknown or in doubt.

    `escaped` names kernels that ran outside the timed span; the span is then shorter than the backward.
    """

    kernels: list[Kernel] | None
    totals: KernelTotals | None = None
    note: Reason | None = None
    escaped: Reason | None = None


def breakdown(
    candidates: Sequence[Candidate], device: Device, flush: Flush, rng: random.Random
) -> dict[str, Breakdown]:
    """Profile all candidates of a case in one session, with the same steps as a sample; needs a GPU."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    events_us: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as session:
        for candidate in candidates:
            for _ in range(REPETITIONS):
                events_us[candidate.name].append(_marked_sample(device, candidate, flush, rng))
        torch.cuda.synchronize()
    # The session also records the host's calls into the runtime; only what ran on the device is an activity.
    activities = [
        Activity(event.name, event.time_range.start, event.time_range.elapsed_us(), event.id)
        for event in session.events() or []
        if event.device_type == DeviceType.CUDA
    ]
    return assign(events_us, activities)


def _marked_sample(device: Device, candidate: Candidate, flush: Flush, rng: random.Random) -> float:
    make_ready(device, candidate, flush, rng, longer_hold_us(candidate))
    device.hold(MARKER_US)
    device.start()
    outputs = candidate.run()
    device.end()
    device.hold(MARKER_US)
    us = device.elapsed_us()
    del outputs
    return us


def assign(events_us: Mapping[str, Sequence[float]], activities: Sequence[Activity]) -> dict[str, Breakdown]:
    """The breakdown of each candidate by what was launched between its markers; unknown for all if markers were lost.

    `events_us` has, by candidate and in the order of the runs, the time between the events around each run.
    """
    launched = sorted(activities, key=lambda activity: (activity.launch, activity.start_us))
    spins = [place for place, activity in enumerate(launched) if MARKER in activity.name]
    expected = SPINS * sum(len(runs_us) for runs_us in events_us.values())
    if len(spins) != expected:
        note = Reason("lost_records", {"markers": len(spins), "expected": expected})
        return dict.fromkeys(events_us, Breakdown(None, note=note))
    markers = iter([spins[place : place + SPINS] for place in range(0, len(spins), SPINS)])
    breakdowns: dict[str, Breakdown] = {}
    for name, read_us in events_us.items():
        runs: list[_Run] = []
        for us in read_us:
            _, first, last = next(markers)
            runs.append(_Run(launched[first + 1 : last], launched[first], launched[last], us))
        breakdowns[name] = _of_runs(runs)
    return breakdowns


@dataclass(frozen=True)
class _Run:
    """What was launched between two markers, and what events read around it."""

    activities: Sequence[Activity]
    first: Activity
    last: Activity
    event_us: float

    @property
    def start_us(self) -> float:
        return min(activity.start_us for activity in self.activities)

    @property
    def span_us(self) -> float:
        return max(activity.end_us for activity in self.activities) - self.start_us

    @property
    def union_us(self) -> float:
        union = 0.0
        reached = self.start_us
        for activity in sorted(self.activities, key=lambda activity: activity.start_us):
            union += max(0.0, activity.end_us - max(reached, activity.start_us))
            reached = max(reached, activity.end_us)
        return union

    @property
    def escaped(self) -> Sequence[Activity]:
        begin_us, end_us = self.first.end_us - CLOCK_SLACK_US, self.last.start_us + CLOCK_SLACK_US
        return [activity for activity in self.activities if activity.start_us < begin_us or activity.end_us > end_us]


def _of_runs(runs: Sequence[_Run]) -> Breakdown:
    escaped = [activity.name for run in runs for activity in run.escaped]
    why = Reason(ESCAPES, {"kernel": escaped[0]}) if escaped else None
    return replace(_agree(runs), escaped=why)


def _agree(runs: Sequence[_Run]) -> Breakdown:
    launched = [[activity.name for activity in run.activities] for run in runs]
    if any(sorted(names) != sorted(launched[0]) for names in launched):
        return Breakdown(None, note=Reason("kernels_differ", {"launched": [len(names) for names in launched]}))
    if any(names != launched[0] for names in launched):
        return Breakdown(None, note=Reason("other_order_of_kernels"))
    if not launched[0]:
        return Breakdown([], note=Reason("nothing_launched"))
    return Breakdown(
        [_kernel(place, runs) for place in range(len(launched[0]))],
        KernelTotals(
            sum_us=_median([sum(activity.us for activity in run.activities) for run in runs]),
            union_us=_median([run.union_us for run in runs]),
            span_us=_median([run.span_us for run in runs]),
            event_us=_median([run.event_us for run in runs]),
            lead_us=_median([run.start_us - run.first.end_us for run in runs]),
        ),
    )


def _kernel(place: int, runs: Sequence[_Run]) -> Kernel:
    return Kernel(
        name=runs[0].activities[place].name,
        median_us=_median([run.activities[place].us for run in runs]),
        start_us=_median([run.activities[place].start_us - run.start_us for run in runs]),
    )


def _median(values: Sequence[float]) -> float:
    return round(median(values), 3)
