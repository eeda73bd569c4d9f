"""Times each Triton kernel between two events of its own: a cross-check of the profiler, which sees them overlap."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from harness.records.schema import Flush, Kernel
from harness.timing.engine import Candidate, Device, longer_hold_us, make_ready

REPETITIONS = 5


def time_launches(candidate: Candidate, device: Device, flush: Flush, rng: random.Random) -> list[tuple[str, float]]:
    """The name and time (median us) of each Triton kernel that a run launches, in launch order; needs a GPU.

    Events between two kernels keep the second from starting early, so each time is that of a kernel alone. Empty where
    nothing is launched through Triton, or where the kernels differ between repetitions.
    """
    runs: list[list[tuple[str, float]]] = []
    for _ in range(REPETITIONS):
        make_ready(device, candidate, flush, rng, longer_hold_us(candidate))
        with _recorded() as launches:
            device.start()
            outputs = candidate.run()
            device.end()
        device.elapsed_us()  # waits
        del outputs
        runs.append([(name, begin.elapsed_time(end) * 1e3) for name, begin, end in launches])
    names = [[name for name, _ in run] for run in runs]
    if any(other != names[0] for other in names):
        return []
    return [(name, median(run[place][1] for run in runs)) for place, name in enumerate(names[0])]


def attach(kernels: Sequence[Kernel], launches: Sequence[tuple[str, float]]) -> list[Kernel]:
    """Give each kernel the time between its own events, matched by name in launch order; none if any is unmatched."""
    unmatched = list(launches)
    attached: list[Kernel] = []
    for kernel in kernels:
        if unmatched and unmatched[0][0] == kernel.name:
            attached.append(kernel.model_copy(update={"event_us": round(unmatched.pop(0)[1], 3)}))
        else:
            attached.append(kernel)
    return list(kernels) if unmatched else attached


@contextmanager
def _recorded() -> Generator[list[tuple[str, Any, Any]]]:
    """Record an event before and after each launch that goes through Triton."""
    import torch
    from triton import knobs

    launches: list[tuple[str, Any, Any]] = []

    def event() -> Any:
        recorded = torch.cuda.Event(enable_timing=True)
        recorded.record()
        return recorded

    def enter(metadata: Any) -> None:
        launches.append((metadata.get()["name"], event(), None))

    def leave(_: Any) -> None:
        name, begin, _ = launches.pop()
        launches.append((name, begin, event()))

    hooks: Any = knobs.runtime
    hooks.launch_enter_hook.add(enter)
    hooks.launch_exit_hook.add(leave)
    try:
        yield launches
    finally:
        hooks.launch_enter_hook.remove(enter)
        hooks.launch_exit_hook.remove(leave)
