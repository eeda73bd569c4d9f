"""All contenders of a case timed together: on one device, beside the same-traffic add and the A/A pair."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from harness.cases import DeviceKind, Inputs, case_seed
from harness.cases.traffic import ADD_NAME, same_traffic_add
from harness.devices.nvml import Reading
from harness.results.schema import Timing
from harness.results.settings import Settings
from harness.timing.breakdown import Breakdown, breakdown
from harness.timing.cpu import CpuDevice
from harness.timing.cuda import CudaDevice
from harness.timing.engine import Candidate, CandidateError, Device, Measurement, measure, take_sample
from harness.timing.launches import attach, time_launches
from harness.timing.other_engines import time_elsewhere
from harness.timing.stopping import StoppingRule
from harness.worker.messages import Stage

AGAIN = " (again)"  # a second appearance, under another name


@dataclass(frozen=True)
class Together:
    """Timings and kernels by implementation; `again` holds the second timing of those that are timed twice.

    An A/A twin with code of its own counts as an implementation. `same_traffic_add` is None where it did not fit.
    """

    timings: dict[str, Timing]
    kernels: dict[str, Breakdown]
    again: dict[str, Timing]
    same_traffic_add: Timing | None
    readings: list[Reading]
    elsewhere_us: dict[str, dict[str, float]]


def time_together(
    inputs: Inputs,
    candidates: Sequence[Candidate],
    settings: Settings,
    group: str,
    process: int,
    watch: Callable[[str | None, Stage], None],
    look: Callable[[str, object], None] = lambda _name, _answer: None,
    restore: Callable[[], None] = lambda: None,
) -> Together:
    """Time candidates, named by implementation, in interleaved blocks.

    Then `look` is shown the answer that each gives to one more call, on inputs that `restore` has put back, timed like
    all before it. Each process of a run has an order of its own.

    Raises CandidateError, naming the implementation, where one of them raises; what the device itself raises passes
    through.
    """
    watch(None, "time")
    device = make_device(inputs.case.device, settings.flush_bytes, inputs.x)
    again = {c.name: replace(c, name=c.name + AGAIN) for c in _timed_twice(candidates, settings)}
    add = _add_candidate(inputs)
    everyone = [*candidates, *again.values(), *([add] if add else [])]
    rule = StoppingRule(settings.min_blocks, settings.max_blocks, settings.half_width, settings.budget_s)

    def announce(name: str) -> None:
        watch(None if name == ADD_NAME else name.removesuffix(AGAIN), "time")

    rng = random.Random(case_seed(inputs.case, settings.seed, f"order {process}"))
    try:
        measurement = measure(device, everyone, rule, settings.flush, rng, announce)
    except CandidateError as error:
        if error.candidate == ADD_NAME and error.__cause__:
            raise error.__cause__ from None
        raise CandidateError(error.candidate.removesuffix(AGAIN)) from error.__cause__
    for candidate in candidates:
        announce(candidate.name)
        restored = replace(candidate, restore=restore)
        take_sample(device, restored, settings.flush, rng, lambda answer, name=candidate.name: look(name, answer))
    timings = {c.name: _timing(measurement, c, settings, group) for c in everyone}
    watch(None, "break down")
    kernels = _break_down(inputs, candidates, device, settings, rng)
    watch(None, "cross-check")
    elsewhere_us = time_elsewhere(candidates) if settings.cross_check and inputs.case.device != "cpu" else {}
    return Together(
        timings={c.name: timings[c.name] for c in candidates},
        kernels=kernels,
        again={name: timings[twin.name] for name, twin in again.items()},
        same_traffic_add=timings.get(ADD_NAME),
        readings=measurement.readings,
        elsewhere_us=elsewhere_us,
    )


def _timed_twice(candidates: Sequence[Candidate], settings: Settings) -> Sequence[Candidate]:
    """The candidates that are timed under two names; none where the baseline has a twin with code of its own."""
    if settings.twin is not None:
        return ()
    if settings.twice:
        return candidates
    return [next((c for c in candidates if c.name == settings.baseline), candidates[0])]


def _add_candidate(inputs: Inputs) -> Candidate | None:
    """The add with the case's traffic, tried once: on a nearly full device there may be no room for its output."""
    add = same_traffic_add(inputs)
    try:
        add()
    except torch.OutOfMemoryError:
        return None
    return Candidate(ADD_NAME, add)


def make_device(kind: DeviceKind, flush_bytes: int, output_like: torch.Tensor) -> Device:
    """The device as the engine sees it; `output_like` is a tensor of the size of the largest output."""
    return CpuDevice(flush_bytes) if kind == "cpu" else CudaDevice(flush_bytes, output_like)


def _timing(measurement: Measurement, candidate: Candidate, settings: Settings, group: str) -> Timing:
    return Timing(
        group=group,
        flush=settings.flush,
        samples_us=[round(us, 3) for us in measurement.samples_us[candidate.name]],
        blocks=measurement.blocks,
        voided=dict(measurement.voided),
        proven=candidate.proven,
    )


def _break_down(
    inputs: Inputs, candidates: Sequence[Candidate], device: Device, settings: Settings, rng: random.Random
) -> dict[str, Breakdown]:
    if inputs.case.device == "cpu" or not settings.profiled:
        return {}
    try:
        breakdowns = breakdown(candidates, device, settings.flush, rng)
        return {c.name: _with_launches(breakdowns[c.name], c, device, settings, rng) for c in candidates}
    except Exception as error:  # a profiler that fails costs the breakdown, never the timing
        return dict.fromkeys((c.name for c in candidates), Breakdown(None, note=f"{type(error).__name__}: {error}"))


def _with_launches(
    profile: Breakdown, candidate: Candidate, device: Device, settings: Settings, rng: random.Random
) -> Breakdown:
    if not profile.kernels:
        return profile
    return replace(profile, kernels=attach(profile.kernels, time_launches(candidate, device, settings.flush, rng)))
