"""Times the contenders of a case in the contexts of a training step, one context after the other."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import median

import torch

from harness.cases import Grads, Inputs
from harness.cases.tensors import OUTPUT_GRADIENTS
from harness.cases.traffic import ADD_NAME, same_traffic_add
from harness.devices.capture import CaptureError, capture
from harness.devices.holder import Holder
from harness.devices.nvml import SensorReading
from harness.errors import UnavailableError
from harness.records.contexts import FWD_BWD, GRAPH, HOST, HOT_DY, IN_A_ROW, parse_holder, programs_beside
from harness.records.reasons import ALL_VOID, Reason, raised
from harness.records.schema import ContextRecord, HolderRecord, Timing
from harness.timing.engine import Candidate, CandidateError, Device
from harness.timing.step_contexts import CALLS_BEFORE, CompetingKernel, HostClock, Preceded, repeated, replayed, reset
from harness.verify.repetition import spoil
from harness.worker.interleave import TimingJob, implementation_of, judge_timed, lineup, make_device, time_blocks
from harness.worker.messages import Stage
from harness.worker.rows import status_of

STAGE: Stage = "time in context"
MOST_BLOCKS = 60  # of each context: more blocks would resolve less than what a context changes
NOT_ON_A_CPU = "a CPU has no streams: nothing runs beside a call, which is itself what is timed"


@dataclass
class ContextTimings:
    """The records of one context by candidate, and the state of the device after each block.

    `captured` describes the graph of each candidate.
    """

    records: dict[str, ContextRecord] = field(default_factory=dict[str, ContextRecord])
    readings: list[SensorReading] = field(default_factory=list[SensorReading])
    holder: HolderRecord | None = None
    captured: dict[str, Reason] = field(default_factory=dict[str, Reason])


@dataclass(frozen=True)
class TrainingStep:
    """One case and its contenders, with the times that each has alone."""

    job: TimingJob
    alone: Mapping[str, Timing]

    @property
    def longest_us(self) -> float:
        """The largest median time alone."""
        return max((median(timing.samples_us) for timing in self.alone.values() if timing.samples_us), default=0.0)

    def time_in(self, context: str) -> ContextTimings:
        """Time all in one context; a candidate that cannot be timed in it gets a record with the reason.

        Raises CandidateError, which names the implementation, where a candidate lost the device.
        """
        self.job.watch(None, STAGE)
        result = ContextTimings()
        try:
            self._try(context, result)
        except CandidateError:
            raise
        except Exception as error:  # most often no memory for the flush buffers
            if not self._device_answers():
                raise
            untimed = ContextRecord(status="ok", untimed=raised(error))
            result.records = {
                candidate.name: result.records.get(candidate.name, untimed) for candidate in self.job.candidates
            }
        return result

    def _try(self, context: str, result: ContextTimings) -> None:
        device = self._device(context, result)
        candidates = self._candidates_in(context, device, result) if device else []
        rng = self.job.shuffler(context)
        while device and any(candidate.name != ADD_NAME for candidate in candidates):
            try:
                self._time(context, device, candidates, rng, result)
                break
            except CandidateError as error:
                cause = error.__cause__ or error
                if not self._device_answers():
                    raise
                result.records[error.candidate] = ContextRecord(status=status_of(cause), reason=raised(cause))
                candidates = [each for each in candidates if implementation_of(each.name) != error.candidate]

    def _device(self, context: str, result: ContextTimings) -> Device | None:
        """The device with what the context adds to it; None, and a record for each candidate, if refused."""
        try:
            if self.job.inputs.case.device == "cpu" and context not in (HOT_DY, FWD_BWD):
                raise UnavailableError(NOT_ON_A_CPU)
            device = make_device(self.job.inputs.case.device, self.job.settings.flush_bytes, self.job.inputs.x)
            if (programs := programs_beside(context)) is not None:
                holder = _holder(self.job.settings.holder)
                if programs >= holder.multiprocessors:
                    raise UnavailableError(f"none of {holder.multiprocessors} multiprocessors would be free")
                result.holder = HolderRecord(programs=programs, threads=holder.threads, shared_kib=holder.shared_kib)
                return CompetingKernel(device, holder, programs, self.longest_us)
        except UnavailableError as error:
            refused = ContextRecord(status="unsupported", reason=Reason("refused", {"text": str(error)}))
            result.records |= {candidate.name: refused for candidate in self.job.candidates}
            return None
        if context in (HOT_DY, IN_A_ROW):
            return Preceded(device, self._write_dy)  # in a row, until a candidate names a call of its own
        return HostClock(device) if context == HOST else device

    def _candidates_in(self, context: str, device: Device, result: ContextTimings) -> list[Candidate]:
        """The lineup, each called as the context does; one that cannot be captured gets its record."""
        plain = lineup(self.job)
        if context == HOST:
            return [repeated(candidate) for candidate in plain]
        if context == FWD_BWD:
            return [both for candidate in plain for both in self._with_forward(candidate, result)]
        if context == IN_A_ROW and isinstance(device, Preceded):
            tensors = {name: tensor.clone() for name, tensor in self.job.inputs.tensors().items()}
            elsewhere = self.job.inputs.with_tensors(tensors)
            return [each for one in plain for each in self._in_a_row(one, elsewhere, device, result)]
        if context != GRAPH:
            return [reset(candidate) for candidate in plain]
        captured: list[Candidate] = []
        for candidate in plain:
            if implementation_of(candidate.name) not in result.records:
                captured += self._captured(candidate, result)
        return captured

    def _with_forward(self, candidate: Candidate, result: ContextTimings) -> Iterator[Candidate]:
        """The candidate with its forward in the timed call; nothing for the add, and a record for what has none."""
        impl = implementation_of(candidate.name)
        if candidate.name == ADD_NAME or impl in result.records:
            return
        if candidate.forward_backward is None:
            result.records[impl] = ContextRecord(status="unsupported", reason=Reason("no_forward"))
            return
        if both := self._called(candidate, candidate.forward_backward, result):
            yield replace(reset(candidate), run=both)

    def _in_a_row(
        self, candidate: Candidate, elsewhere: Inputs, device: Preceded, result: ContextTimings
    ) -> Iterator[Candidate]:
        """The candidate with calls of its own, on inputs elsewhere, before the timed one."""
        if implementation_of(candidate.name) in result.records:
            return
        prepare = partial(candidate.prepare or same_traffic_add, elsewhere)
        if call := self._called(candidate, prepare, result):
            yield replace(reset(candidate), restore=partial(self._precede, candidate, elsewhere, device, call))

    def _precede(self, candidate: Candidate, elsewhere: Inputs, device: Preceded, call: Callable[[], object]) -> None:
        candidate.restore()
        for name in elsewhere.tensors().keys() & OUTPUT_GRADIENTS:
            elsewhere.tensors()[name].copy_(self.job.inputs.tensors()[name])
        device.precede(call, CALLS_BEFORE)

    def _called(
        self, candidate: Candidate, prepare: Callable[[], Callable[[], object]], result: ContextTimings
    ) -> Callable[[], object] | None:
        """What is prepared, after a first call, which compiles; None, and a record, where that raises."""
        self.job.announce(candidate.name, STAGE)
        try:
            call = prepare()
            call()
        except Exception as error:
            impl = implementation_of(candidate.name)
            result.records[impl] = ContextRecord(status=status_of(error), reason=raised(error))
            return None
        return call

    def _captured(self, candidate: Candidate, result: ContextTimings) -> Iterator[Candidate]:
        self.job.announce(candidate.name, STAGE)
        try:
            captured = capture(candidate.prepare or (lambda: candidate.run))
        except CaptureError as error:
            refused = Reason("not_captured", {"text": str(error)})
            result.records[candidate.name] = ContextRecord(status="unsupported", reason=refused)
            return
        if captured.nodes is not None and not captured.nodes:
            result.records[candidate.name] = ContextRecord(status="wrong", reason=Reason("captured_nothing"))
            return
        result.captured[candidate.name] = Reason("captured", {"content": captured.content})
        yield replayed(candidate, captured, self._spoil)

    def _time(
        self, context: str, device: Device, candidates: Sequence[Candidate], rng: random.Random, result: ContextTimings
    ) -> None:
        settings = self.job.settings
        max_blocks = min(settings.max_blocks, MOST_BLOCKS)
        few = settings.changed(min_blocks=min(settings.min_blocks, max_blocks), max_blocks=max_blocks)
        job = replace(self.job, settings=few)
        blocks = time_blocks(job, device, candidates, rng, f"{job.group}-{context}", STAGE)
        names = {candidate.name for candidate in job.candidates} if context != HOST else ()  # there, calls overlap
        judged = [
            replace(candidate, restore=partial(_both, job.restore, candidate.restore))
            for candidate in candidates
            if candidate.name in names
        ]
        faults = judge_timed(job, device, judged, rng, STAGE)
        result.readings = blocks.readings
        for name, timing in blocks.timings.items():
            result.records[name] = _record(context, device, timing, result.captured.get(name), faults.get(name))

    def _device_answers(self) -> bool:
        try:
            if self.job.inputs.case.device != "cpu":
                torch.cuda.synchronize()
        except Exception:
            return False
        return True

    def _write_dy(self) -> None:
        """Write the same values again, without autograd's version counter noticing."""
        for name, tensor in self.job.inputs.tensors().items():
            if name in OUTPUT_GRADIENTS:
                tensor.data.mul_(1)

    def _spoil(self, answer: object) -> None:
        if isinstance(answer, Grads):
            spoil(self.job.inputs, answer)


@cache
def _holder(setting: str) -> Holder:
    """The competing kernel for a value of `--holder`; compiled once in a process."""
    return Holder(*parse_holder(setting))


def _both(first: Callable[[], None], then: Callable[[], None]) -> None:
    first()
    then()


def _record(
    context: str, device: Device, timing: Timing, captured: Reason | None, fault: Reason | None
) -> ContextRecord:
    notes = [captured] if captured else []
    if fault:
        return ContextRecord(status="wrong", reason=Reason("in_timed_call", parts=[fault]), notes=notes)
    if not timing.samples_us:
        causes = [Reason("void_blocks", {"blocks": void.blocks}, [void.cause]) for void in timing.voided]
        return ContextRecord(status="ok", untimed=Reason(ALL_VOID, parts=causes), notes=notes)
    if context == HOST and not timing.proven:
        return ContextRecord(status="ok", untimed=Reason("host_waited"))
    if isinstance(device, CompetingKernel):
        timing = timing.model_copy(update={"waited": sum(map(device.waits, timing.samples_us))})
    return ContextRecord(status="ok", timing=timing, notes=notes)
