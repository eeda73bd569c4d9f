"""Times all contenders of a case together, in the same blocks as the same-traffic add and the A/A pair."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from harness.cases import DeviceKind, Inputs, case_seed
from harness.cases.traffic import ADD_NAME, same_traffic_add
from harness.devices.nvml import SensorReading
from harness.records.reasons import Reason, raised
from harness.records.schema import Timing, VoidBlocks
from harness.records.settings import Settings
from harness.timing.breakdown import Breakdown, breakdown
from harness.timing.cpu import CpuDevice
from harness.timing.cuda import CudaDevice
from harness.timing.engine import Candidate, CandidateError, Device, Measurement, measure, take_sample
from harness.timing.launches import attach, time_launches
from harness.timing.other_engines import time_with_other_engines
from harness.timing.stopping import StoppingRule
from harness.worker.messages import Stage

AGAIN = " (again)"  # a second appearance, under another name


def _nothing(*_: object) -> None:
    return


@dataclass(frozen=True)
class TimingJob:
    """The candidates to time together, named by implementation, and how.

    `judge` returns what is wrong with the gradients of an implementation, or None; `restore` restores the inputs;
    `watch` is called with the implementation and stage that begin.
    """

    inputs: Inputs
    candidates: Sequence[Candidate]
    settings: Settings
    group: str
    process: int = 0
    watch: Callable[[str | None, Stage], None] = _nothing
    judge: Callable[[str, object], Reason | None] = _nothing
    restore: Callable[[], None] = _nothing

    def shuffler(self, context: str = "") -> random.Random:
        """The random generator of the order in the blocks; it differs by process of the run and by context."""
        order = f"order {self.process} {context}".rstrip()
        return random.Random(case_seed(self.inputs.case, self.settings.seed, order))


@dataclass(frozen=True)
class Lineup:
    """All that is timed in a block: the candidates, the second copies of some (`again`), and the add if it fits."""

    candidates: Sequence[Candidate]
    again: Mapping[str, Candidate]
    add: Candidate | None

    @property
    def all(self) -> list[Candidate]:
        """All candidates, in the order in which they are warmed up."""
        return [*self.candidates, *self.again.values(), *([self.add] if self.add else [])]


@dataclass(frozen=True)
class Blocks:
    """Timings by implementation; `again` holds the second timing of those that are timed twice.

    An A/A twin with code of its own counts as an implementation. `same_traffic_add` is None where it did not fit.
    """

    timings: dict[str, Timing]
    again: dict[str, Timing]
    same_traffic_add: Timing | None
    readings: list[SensorReading]


@dataclass(frozen=True)
class Together(Blocks):
    """Blocks, and by implementation the kernels, the times of other engines in us, and faults of a timed call."""

    kernels: dict[str, Breakdown]
    other_engines_us: dict[str, dict[str, float]]
    faults: dict[str, Reason]


def time_together(job: TimingJob) -> Together:
    """Time candidates in interleaved blocks, then judge the gradients of one more timed call of each.

    The inputs are restored before that call. Raises CandidateError, which names the implementation, where a candidate
    raises; errors of the device itself are passed on.
    """
    job.watch(None, "time")
    inputs, settings = job.inputs, job.settings
    device = make_device(inputs.case.device, settings.flush_bytes, inputs.x)
    rng = job.shuffler()
    blocks = time_blocks(job, device, lineup(job), rng)
    restoring = [replace(candidate, restore=job.restore) for candidate in job.candidates]
    faults = judge_timed(job, device, restoring, rng)
    job.watch(None, "break down")
    kernels = _break_down(job, device, rng)
    job.watch(None, "cross-check")
    other_engines_us = (
        time_with_other_engines(job.candidates) if settings.cross_check and inputs.case.device != "cpu" else {}
    )
    return Together(
        timings=blocks.timings,
        again=blocks.again,
        same_traffic_add=blocks.same_traffic_add,
        readings=blocks.readings,
        kernels=kernels,
        other_engines_us=other_engines_us,
        faults=faults,
    )


def judge_timed(
    job: TimingJob, device: Device, candidates: Sequence[Candidate], rng: random.Random, stage: Stage = "time"
) -> dict[str, Reason]:
    """Time each candidate once more and judge its gradients; returns the faults by name."""
    faults: dict[str, Reason] = {}

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
    """Time a lineup in interleaved blocks, under the job's group or `group`; raises as `time_together` does."""
    settings = job.settings
    rule = StoppingRule(settings.min_blocks, settings.max_blocks, settings.half_width, settings.budget_s)

    def announce(name: str) -> None:
        job.watch(None if name == ADD_NAME else name.removesuffix(AGAIN), stage)

    try:
        measurement = measure(device, lineup.all, rule, settings.flush, rng, announce)
    except CandidateError as error:
        if error.candidate == ADD_NAME and error.__cause__:
            raise error.__cause__ from None
        raise CandidateError(error.candidate.removesuffix(AGAIN)) from error.__cause__
    timings = {c.name: _timing(measurement, c, settings, group or job.group) for c in lineup.all}
    return Blocks(
        timings={c.name: timings[c.name] for c in lineup.candidates},
        again={name: timings[twin.name] for name, twin in lineup.again.items()},
        same_traffic_add=timings.get(ADD_NAME),
        readings=measurement.readings,
    )


def lineup(job: TimingJob) -> Lineup:
    """The candidates, the second copies of those that are timed twice, and the same-traffic add."""
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
    """The same-traffic add, after one trial call; None where the device has no memory for its output."""
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
        voided=[VoidBlocks(cause=cause, blocks=blocks) for cause, blocks in measurement.voided.items()],
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
        return dict.fromkeys((c.name for c in candidates), Breakdown(None, note=raised(error)))


def _with_launches(
    profile: Breakdown, candidate: Candidate, device: Device, settings: Settings, rng: random.Random
) -> Breakdown:
    if not profile.kernels:
        return profile
    return replace(profile, kernels=attach(profile.kernels, time_launches(candidate, device, settings.flush, rng)))
