"""Times all contenders of a case together, in the same blocks as the same-traffic add and the A/A pair."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
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
from harness.timing.engine import Candidate, CandidateError, Device, measure, take_sample
from harness.timing.launches import attach, time_launches
from harness.timing.other_engines import time_with_other_engines
from harness.timing.stopping import StoppingRule
from harness.worker.messages import Stage

AGAIN = " (again)"  # what the name of a candidate ends in that is timed a second time


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

    def announce(self, candidate: str, stage: Stage) -> None:
        """Announce a stage of a candidate under the name of its implementation; the add has none."""
        self.watch(None if candidate == ADD_NAME else implementation_of(candidate), stage)


@dataclass(frozen=True)
class Blocks:
    """Timings by candidate: those of the job, NAME (again) for each that is timed twice, and the add if it fits."""

    timings: dict[str, Timing]
    readings: list[SensorReading]


@dataclass(frozen=True)
class Together(Blocks):
    """Blocks, and by implementation the kernels, the times of other engines in us, and faults of a timed call."""

    kernels: dict[str, Breakdown]
    other_engines_us: dict[str, dict[str, float]]
    faults: dict[str, Reason]


def implementation_of(candidate: str) -> str:
    """The implementation that a candidate is, or is the second copy of."""
    return candidate.removesuffix(AGAIN)


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
    faults = judge_timed(job, device, [replace(candidate, restore=job.restore) for candidate in job.candidates], rng)
    job.watch(None, "break down")
    kernels = _break_down(job, device, rng)
    job.watch(None, "cross-check")
    crossed = settings.cross_check and inputs.case.device != "cpu"
    other_engines_us = time_with_other_engines(job.candidates) if crossed else {}
    return Together(blocks.timings, blocks.readings, kernels, other_engines_us, faults)


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
    job: TimingJob,
    device: Device,
    candidates: Sequence[Candidate],
    rng: random.Random,
    group: str | None = None,
    stage: Stage = "time",
) -> Blocks:
    """Time candidates in interleaved blocks, under the job's group or `group`; raises as `time_together` does."""
    settings = job.settings
    rule = StoppingRule(settings.min_blocks, settings.max_blocks, settings.half_width, settings.budget_s)
    try:
        measurement = measure(
            device, candidates, rule, settings.flush, rng, lambda candidate: job.announce(candidate, stage)
        )
    except CandidateError as error:
        if error.candidate == ADD_NAME and error.__cause__:
            raise error.__cause__ from None
        raise CandidateError(implementation_of(error.candidate)) from error.__cause__
    voided = [VoidBlocks(cause=cause, blocks=blocks) for cause, blocks in measurement.voided.items()]
    timings = {
        candidate.name: Timing(
            group=group or job.group,
            flush=settings.flush,
            samples_us=[round(us, 3) for us in measurement.samples_us[candidate.name]],
            blocks=measurement.blocks,
            voided=voided,
            proven=candidate.proven,
        )
        for candidate in candidates
    }
    return Blocks(timings, measurement.readings)


def lineup(job: TimingJob) -> list[Candidate]:
    """All that is timed in a block, in the order of warming up: the candidates, second copies, and the add if it fits.

    All candidates have a second copy, or only the baseline; none where the baseline has a twin with code of its own.
    """
    candidates, settings = job.candidates, job.settings
    if settings.twin is not None:
        twice: Sequence[Candidate] = ()
    elif settings.twice:
        twice = candidates
    else:
        twice = [next((c for c in candidates if c.name == settings.baseline), candidates[0])]
    return [*candidates, *(replace(c, name=c.name + AGAIN) for c in twice), *_add_candidates(job.inputs)]


def _add_candidates(inputs: Inputs) -> list[Candidate]:
    """The same-traffic add, after one trial call; none where the device has no memory for its output."""
    add = same_traffic_add(inputs)
    try:
        add()
    except torch.OutOfMemoryError:
        return []
    return [Candidate(ADD_NAME, add)]


def make_device(kind: DeviceKind, flush_bytes: int, output_like: torch.Tensor) -> Device:
    """The device as the engine sees it; `output_like` is a tensor of the size of the largest output."""
    return CpuDevice(flush_bytes) if kind == "cpu" else CudaDevice(flush_bytes, output_like)


def _break_down(job: TimingJob, device: Device, rng: random.Random) -> dict[str, Breakdown]:
    settings, candidates = job.settings, job.candidates
    if job.inputs.case.device == "cpu" or not settings.profiled:
        return {}
    try:
        breakdowns = breakdown(candidates, device, settings.flush, rng)
        for candidate in candidates:
            profile = breakdowns[candidate.name]
            if profile.kernels:
                kernels = attach(profile.kernels, time_launches(candidate, device, settings.flush, rng))
                breakdowns[candidate.name] = replace(profile, kernels=kernels)
        return breakdowns
    except Exception as error:  # a profiler that fails costs the breakdown, never the timing
        return dict.fromkeys((c.name for c in candidates), Breakdown(None, note=raised(error)))
