"""All contenders of a case timed together: on one device, beside the same-traffic add and the A/A pair."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
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
class Lineup:
    """Who is timed together: candidates by implementation, those that are timed twice once more, the add if it fits."""

    candidates: Sequence[Candidate]
    again: Mapping[str, Candidate]
    add: Candidate | None

    @property
    def everyone(self) -> list[Candidate]:
        """All of them, in the order in which they are warmed up."""
        return [*self.candidates, *self.again.values(), *([self.add] if self.add else [])]


@dataclass(frozen=True)
class Blocks:
    """Timings by implementation; `again` holds the second timing of those that are timed twice.

    An A/A twin with code of its own counts as an implementation. `same_traffic_add` is None where it did not fit.
    """

    timings: dict[str, Timing]
    again: dict[str, Timing]
    same_traffic_add: Timing | None
    readings: list[Reading]


@dataclass(frozen=True)
class Together(Blocks):
    """The blocks, and the kernels and what other engines read by implementation."""

    kernels: dict[str, Breakdown]
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
    rng = random.Random(case_seed(inputs.case, settings.seed, f"order {process}"))
    blocks = time_blocks(device, lineup(inputs, candidates, settings), settings, group, rng, watch)
    for candidate in candidates:
        watch(candidate.name, "time")
        restored = replace(candidate, restore=restore)
        take_sample(device, restored, settings.flush, rng, lambda answer, name=candidate.name: look(name, answer))
    watch(None, "break down")
    kernels = _break_down(inputs, candidates, device, settings, rng)
    watch(None, "cross-check")
    elsewhere_us = time_elsewhere(candidates) if settings.cross_check and inputs.case.device != "cpu" else {}
    return Together(
        timings=blocks.timings,
        again=blocks.again,
        same_traffic_add=blocks.same_traffic_add,
        readings=blocks.readings,
        kernels=kernels,
        elsewhere_us=elsewhere_us,
    )


def time_blocks(
    device: Device,
    lineup: Lineup,
    settings: Settings,
    group: str,
    rng: random.Random,
    watch: Callable[[str | None, Stage], None],
    stage: Stage = "time",
) -> Blocks:
    """Time all of a lineup in interleaved blocks; raises as `time_together` does."""
    rule = StoppingRule(settings.min_blocks, settings.max_blocks, settings.half_width, settings.budget_s)

    def announce(name: str) -> None:
        watch(None if name == ADD_NAME else name.removesuffix(AGAIN), stage)

    try:
        measurement = measure(device, lineup.everyone, rule, settings.flush, rng, announce)
    except CandidateError as error:
        if error.candidate == ADD_NAME and error.__cause__:
            raise error.__cause__ from None
        raise CandidateError(error.candidate.removesuffix(AGAIN)) from error.__cause__
    timings = {c.name: _timing(measurement, c, settings, group) for c in lineup.everyone}
    return Blocks(
        timings={c.name: timings[c.name] for c in lineup.candidates},
        again={name: timings[twin.name] for name, twin in lineup.again.items()},
        same_traffic_add=timings.get(ADD_NAME),
        readings=measurement.readings,
    )


def lineup(inputs: Inputs, candidates: Sequence[Candidate], settings: Settings) -> Lineup:
    """These candidates with all that stands beside them in a block."""
    again = {c.name: replace(c, name=c.name + AGAIN) for c in _timed_twice(candidates, settings)}
    return Lineup(candidates, again, _add_candidate(inputs))


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
