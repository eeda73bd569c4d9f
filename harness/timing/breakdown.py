"""Which kernels a backward launches and how long each takes: a pass of its own, never the headline.

One profiler session a case. Every run stands between two spin kernels, so that flushes and restores are told apart
from the backward by position, and nothing has to be filtered by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from harness.results import Kernel
from harness.timing.engine import Candidate

REPETITIONS = 3
MARKER = "spin_kernel"  # what torch.cuda._sleep launches, on CUDA and ROCm
MARKER_CYCLES = 2000


@dataclass(frozen=True)
class Activity:
    """One thing that the device did: its name and duration in microseconds."""

    name: str
    us: float


@dataclass(frozen=True)
class Breakdown:
    """The kernels of one backward in launch order, or why they are unknown."""

    kernels: list[Kernel] | None
    note: str | None = None


def breakdown(candidates: Sequence[Candidate], flush: Callable[[], None]) -> dict[str, Breakdown]:
    """Profile all candidates of a case in one session; needs a GPU."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    def marker() -> None:
        torch.cuda._sleep(MARKER_CYCLES)  # pyright: ignore[reportPrivateUsage]

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as session:
        for candidate in candidates:
            for _ in range(REPETITIONS):
                candidate.restore()
                flush()
                marker()
                outputs = candidate.run()
                marker()
                del outputs
        torch.cuda.synchronize()
    # The session also records the host's calls into the runtime; only what ran on the device is an activity.
    events = [event for event in session.events() or [] if event.device_type == DeviceType.CUDA]
    events.sort(key=lambda event: event.time_range.start)
    activities = [Activity(event.name, event.time_range.elapsed_us()) for event in events]
    return assign([candidate.name for candidate in candidates], activities)


def assign(names: Sequence[str], activities: Sequence[Activity]) -> dict[str, Breakdown]:
    """Give each candidate the activities between its markers; fail closed where markers were lost."""
    runs: list[list[Activity]] = []
    inside = False
    for activity in activities:
        if MARKER in activity.name:
            inside = not inside
            if inside:
                runs.append([])
        elif inside:
            runs[-1].append(activity)
    if len(runs) != REPETITIONS * len(names) or inside:
        return dict.fromkeys(names, Breakdown(None, "the profiler lost records"))
    return {name: _agree(runs[i * REPETITIONS : (i + 1) * REPETITIONS]) for i, name in enumerate(names)}


def _agree(runs: list[list[Activity]]) -> Breakdown:
    launched = [[activity.name for activity in run] for run in runs]
    if any(names != launched[0] for names in launched):
        counts = ", ".join(str(len(names)) for names in launched)
        return Breakdown(None, f"the kernels differ between repetitions ({counts} launched)")
    return Breakdown(
        [Kernel(name=same[0].name, median_us=round(median(a.us for a in same), 3)) for same in zip(*runs, strict=True)]
    )
