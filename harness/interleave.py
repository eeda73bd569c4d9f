"""All contenders of a case timed together: the engine, the device, the floor and the A/A pair brought to one table."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from harness.cases import Inputs, case_seed
from harness.messages import Asked, Stage
from harness.results import Timing
from harness.timing.breakdown import Breakdown, breakdown
from harness.timing.cpu import CpuDevice
from harness.timing.cuda import CudaDevice
from harness.timing.engine import Candidate, CandidateError, Device, Measurement, measure
from harness.timing.stopping import StoppingRule

FLOOR = "same-traffic add"
AGAIN = " (again)"  # the baseline's second appearance, under another name


@dataclass(frozen=True)
class Together:
    """Timings and kernels by implementation; `twin` is who stood in the blocks twice; no floor where it did not fit."""

    timings: dict[str, Timing]
    kernels: dict[str, Breakdown]
    twin: str
    again: Timing
    floor: Timing | None


def time_together(
    inputs: Inputs,
    candidates: Sequence[Candidate],
    asked: Asked,
    group: str,
    watch: Callable[[str | None, Stage], None],
) -> Together:
    """Time candidates, named by implementation, in interleaved blocks.

    Raises CandidateError, naming the implementation, where one of them raises; what the device itself raises passes
    through.
    """
    watch(None, "time")
    device = _device(inputs, asked)
    twin = next((c for c in candidates if c.name == asked.baseline), candidates[0])
    again = replace(twin, name=twin.name + AGAIN)
    floor = _floor(inputs)
    everyone = [*candidates, again, *([floor] if floor else [])]
    rule = StoppingRule(asked.min_blocks, asked.max_blocks, asked.half_width, asked.budget_s)

    def told(name: str) -> None:
        watch(None if name == FLOOR else name.removesuffix(AGAIN), "time")

    rng = random.Random(case_seed(inputs.case, asked.seed, "order"))
    try:
        measurement = measure(device, everyone, rule, asked.flush, rng, told)
    except CandidateError as error:
        if error.candidate == FLOOR and error.__cause__:
            raise error.__cause__ from None
        raise CandidateError(error.candidate.removesuffix(AGAIN)) from error.__cause__
    watch(None, "break down")
    timings = {c.name: _timing(measurement, c, asked, group) for c in everyone}
    return Together(
        timings={c.name: timings[c.name] for c in candidates},
        kernels=_break_down(inputs, candidates, device, asked),
        twin=twin.name,
        again=timings[again.name],
        floor=timings.get(FLOOR),
    )


def _floor(inputs: Inputs) -> Candidate | None:
    """The add with the case's traffic, tried once: on a nearly full device there may be no room for its output."""
    try:
        torch.add(inputs.x, inputs.dy)
    except torch.OutOfMemoryError:
        return None
    return Candidate(FLOOR, lambda: torch.add(inputs.x, inputs.dy))


def _device(inputs: Inputs, asked: Asked) -> Device:
    if inputs.case.device == "cpu":
        return CpuDevice(asked.flush_bytes)
    return CudaDevice(asked.flush_bytes, inputs.x)


def _timing(measurement: Measurement, candidate: Candidate, asked: Asked, group: str) -> Timing:
    return Timing(
        group=group,
        flush=asked.flush,
        samples_us=[round(us, 3) for us in measurement.samples_us[candidate.name]],
        blocks=measurement.blocks,
        voided=dict(measurement.voided),
        proven=candidate.proven,
    )


def _break_down(inputs: Inputs, candidates: Sequence[Candidate], device: Device, asked: Asked) -> dict[str, Breakdown]:
    if inputs.case.device == "cpu":
        return {}
    try:
        return breakdown(candidates, lambda: device.flush(asked.flush))
    except Exception as error:  # a profiler that fails costs the breakdown, never the timing
        return dict.fromkeys((c.name for c in candidates), Breakdown(None, f"{type(error).__name__}: {error}"))
