"""All contenders of a case timed together: on one device, beside the same-traffic add and the A/A pair."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

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


def _nothing(*_: object) -> None:
    return


@dataclass(frozen=True)
class TimingJob:
    """What is timed together, candidates named by implementation, and how.

    `judge` says what is wrong with an answer of an implementation, if anything is; `restore` puts the inputs back;
    `watch` is told who is at work in which stage.
    """

    inputs: Inputs
    candidates: Sequence[Candidate]
    settings: Settings
    group: str
    process: int = 0
    watch: Callable[[str | None, Stage], None] = _nothing
    judge: Callable[[str, object], str | None] = _nothing
    restore: Callable[[], None] = _nothing

    def shuffler(self, context: str = "") -> random.Random:
        """What draws the order in the blocks: another one in each process of a run, and in each context."""
        order = f"order {self.process} {context}".rstrip()
        return random.Random(case_seed(self.inputs.case, self.settings.seed, order))


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
    """The blocks; and by implementation the kernels, what other engines read, and what is wrong with a timed call."""

    kernels: dict[str, Breakdown]
    elsewhere_us: dict[str, dict[str, float]]
    faults: dict[str, str]


def time_together(job: TimingJob) -> Together:
    """Time candidates in interleaved blocks.

    Then the answer that each gives to one more call is judged, on inputs that were put back, timed like all before it.

    Raises CandidateError, naming the implementation, where one of them raises; what the device itself raises passes
    through.
    """
    job.watch(None, "time")
    inputs, settings = job.inputs, job.settings
    device = make_device(inputs.case.device, settings.flush_bytes, inputs.x)
    rng = job.shuffler()
    blocks = time_blocks(job, device, lineup(job), rng)
    faults = judge_timed(job, device, [replace(each, restore=job.restore) for each in job.candidates], rng)
    job.watch(None, "break down")
    kernels = _break_down(job, device, rng)
    job.watch(None, "cross-check")
    elsewhere_us = time_elsewhere(job.candidates) if settings.cross_check and inputs.case.device != "cpu" else {}
    return Together(
        timings=blocks.timings,
        again=blocks.again,
        same_traffic_add=blocks.same_traffic_add,
        readings=blocks.readings,
        kernels=kernels,
        elsewhere_us=elsewhere_us,
        faults=faults,
    )


def judge_timed(
    job: TimingJob, device: Device, candidates: Sequence[Candidate], rng: random.Random, stage: Stage = "time"
) -> dict[str, str]:
    """What is wrong with the answer that each of these gives to one more timed call; no entry where it is right."""
    faults: dict[str, str] = {}

    def judge(name: str, answer: object) -> None:
        if fault := job.judge(name, answer):
            faults[name] = fault

    for candidate in candidates:
        job.watch(candidate.name, stage)
        take_sample(device, candidate, job.settings.flush, rng, partial(judge, candidate.name))
    return faults


def time_blocks(
    job: TimingJob, device: Device, lineup: Lineup, rng: random.Random, group: str | None = None, stage: Stage = "time"
) -> Blocks:
    """Time all of a lineup in interleaved blocks, under the job's group or another; raises as `time_together` does."""
    settings = job.settings
    rule = StoppingRule(settings.min_blocks, settings.max_blocks, settings.half_width, settings.budget_s)

    def announce(name: str) -> None:
        job.watch(None if name == ADD_NAME else name.removesuffix(AGAIN), stage)

    try:
        measurement = measure(device, lineup.everyone, rule, settings.flush, rng, announce)
    except CandidateError as error:
        if error.candidate == ADD_NAME and error.__cause__:
            raise error.__cause__ from None
        raise CandidateError(error.candidate.removesuffix(AGAIN)) from error.__cause__
    timings = {c.name: _timing(measurement, c, settings, group or job.group) for c in lineup.everyone}
    return Blocks(
        timings={c.name: timings[c.name] for c in lineup.candidates},
        again={name: timings[twin.name] for name, twin in lineup.again.items()},
        same_traffic_add=timings.get(ADD_NAME),
        readings=measurement.readings,
    )


def lineup(job: TimingJob) -> Lineup:
    """The candidates with all that stands beside them in a block."""
    again = {c.name: replace(c, name=c.name + AGAIN) for c in _timed_twice(job.candidates, job.settings)}
    return Lineup(job.candidates, again, _add_candidate(job.inputs))


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


def _break_down(job: TimingJob, device: Device, rng: random.Random) -> dict[str, Breakdown]:
    settings, candidates = job.settings, job.candidates
    if job.inputs.case.device == "cpu" or not settings.profiled:
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
