"""One case tried on its implementations: prepare and verify each, then time all that passed, interleaved.

Runs in the worker. What an implementation raises costs its own row; what kills the process is the parent's to record.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from harness.cases import Chosen, Grads, Inputs, NormCase, case_seed, make_inputs
from harness.cases.adapter import Implementation
from harness.cases.input_kinds import INPUT_KINDS
from harness.cases.traffic import ADD_NAME
from harness.errors import UnsupportedError
from harness.results.contexts import parse_contexts
from harness.results.schema import (
    RANKED,
    SAME_TRAFFIC_ADD,
    ConditionsRecord,
    ContextRecord,
    Role,
    RowRecord,
    Status,
    Timing,
)
from harness.timing import conditions
from harness.timing.breakdown import Breakdown
from harness.timing.engine import Candidate, CandidateError
from harness.verify import precision, robustness
from harness.verify.raised import is_out_of_memory, one_line, status_of
from harness.verify.repetition import with_new_dy
from harness.verify.surroundings import Surroundings, at_work_in
from harness.verify.verifier import LINGER_S, Verifier, VerifyResult, synchronise
from harness.worker.interleave import AGAIN, Together, time_together
from harness.worker.interpreter import NEVER_TIMED, watch_interpreter
from harness.worker.messages import Stage, Try
from harness.worker.training_step import InContext, TrainingStep

Watch = Callable[[str | None, Stage], None]
Emit = Callable[[RowRecord | ConditionsRecord], None]


MOST_HELD_BYTES = 1 << 26  # that one which failed may still hold; others need the rest


class SpoiltError(Exception):
    """No other implementation can be tried in this process any more: the worker has to be replaced.

    The device no longer answers it, or an implementation left something behind. The row of that one is written, and it
    was the last to be announced.
    """


@dataclass(frozen=True)
class Prepared:
    """A backward after its first call: how long that took, whether Triton interpreted it, and what harm it did."""

    backward: Callable[[], Grads]
    inputs: Inputs
    seconds: float
    interpreted: bool
    harm: str | None


@dataclass
class Contender:
    """An implementation that has been prepared and verified, and what is known of it so far."""

    implementation: Implementation
    backward: Callable[[], Grads]
    row: RowRecord


class Trial:
    """One request: `watch` is called with each stage before it begins, `emit` with each record once it is final."""

    def __init__(self, request: Try, implementations: dict[str, Implementation], watch: Watch, emit: Emit) -> None:
        self.case = request.case
        self.settings = request.settings
        self.group = request.group
        self.process = request.process
        self.studied = request.studied
        self.wanted = self._in_turn(request.impls, implementations)
        self.announce = watch
        self.emit = emit
        self.contenders: dict[str, Contender] = {}
        self.threads: dict[str, list[str]] = {}  # that each started, and left at work
        self.timed_faults: dict[str, str] = {}

    def run(self) -> None:
        """Try all; every implementation asked for ends in exactly one row."""
        runnable = [implementation for implementation in self.wanted if not self._refused(implementation)]
        if not runnable:
            return
        self.watch(None, "inputs")
        try:
            self.inputs = make_inputs(self.case, self.settings.seed)
            self.pristine = robustness.Pristine.of(self.inputs)
        except Exception as error:  # too large for the device, most often
            for implementation in runnable:
                self._emit_failure(implementation.name, error)
            return
        for implementation in runnable:
            self._qualify(implementation)
        if self.settings.timed:
            self._time()
        for contender in self.contenders.values():
            self.emit(contender.row)

    def _in_turn(self, names: Sequence[str], implementations: dict[str, Implementation]) -> list[Implementation]:
        """The implementations asked for, in the order in which they are prepared and warmed up.

        Where two revisions are compared, the baseline's A/A twin is added. The order is then drawn for each process and
        case, so that no revision is always the later one.
        """
        if self.settings.twin is None:
            return [implementations[name] for name in names]
        names = [*names, self.settings.twin] if self.settings.baseline in names else list(names)
        random.Random(case_seed(self.case, self.settings.seed, f"copies {self.process}")).shuffle(names)
        return [implementations[name] for name in names]

    def watch(self, name: str | None, stage: Stage) -> None:
        """Announce a stage; the baseline's twin is announced as the baseline, whose code it is."""
        self.announce(self.settings.baseline if name is not None and name == self.settings.twin else name, stage)

    def _refused(self, implementation: Implementation) -> bool:
        self.watch(implementation.name, "asking")
        try:
            reason = implementation.unsupported(self.case)
            if implementation.name == self.settings.twin and implementation.untimed(self.case):
                return True  # a second copy is there to be timed
        except Exception as error:
            self._emit_failure(implementation.name, error)
            return True
        if reason:
            self.emit(self._row(implementation.name, "unsupported", reason))
        return bool(reason)

    def _qualify(self, implementation: Implementation) -> None:
        """Prepare and verify one implementation; it becomes a contender, or its row says why not.

        Raises SpoiltError where one that failed left behind what the next would suffer from.
        """
        around, held_bytes = Surroundings.look(), self._device_bytes()
        passed = self._qualifies(implementation, around)
        around.with_environment_of_now().restore()
        self.threads[implementation.name] = around.new_threads()
        if not passed and (around.left_behind() or self._device_bytes() > held_bytes + MOST_HELD_BYTES):
            raise SpoiltError

    def _device_bytes(self) -> int:
        """Device memory in use, without what only waits to be collected; 0 on a CPU."""
        if self.case.device == "cpu":
            return 0
        gc.collect()
        return torch.cuda.memory_allocated()

    def _qualifies(self, implementation: Implementation, around: Surroundings) -> bool:
        name = implementation.name
        try:
            prepared = self._prepare(implementation, around)
            self.watch(name, "verify")
            result = self._verify(implementation, prepared)
            untimed = "timing was not asked for"
            if self.settings.timed:
                untimed = implementation.untimed(self.case) or (NEVER_TIMED if prepared.interpreted else None)
            row = self._row(name, result.status, result.reason).model_copy(
                update={
                    "verification": result.verification,
                    "peak_extra_bytes": result.extra_bytes,
                    "notes": [*implementation.notes(self.case), *result.notes],
                    "chosen": prepared.backward.what if isinstance(prepared.backward, Chosen) else None,
                    "prepare_s": round(prepared.seconds, 3),
                    "untimed": untimed,
                }
            )
        except Exception as error:
            self._fail(name, error, refusable=True)
            return False
        finally:
            self.pristine.restore(self.inputs)
        if row.status == "wrong":
            self._look_for_meddlers()
        if row.status in RANKED and self.settings.timed:
            self.contenders[name] = Contender(implementation, prepared.backward, row)
        else:
            self.emit(row)
        return row.status in RANKED

    def _look_for_meddlers(self) -> None:
        """Before one is blamed: where the inputs change with nobody at work, a thread of another does that."""
        suspects = {name: threads for name in self.contenders if (threads := self.threads[name])}
        if not suspects:
            return
        time.sleep(LINGER_S)
        if not self.pristine.changed(self.inputs, in_place=False):
            return
        modules = {name: self.contenders[name].implementation.module for name in suspects}
        inside = {name: threads for name in suspects if (threads := at_work_in(modules[name].prepare))}
        for name, threads in (inside or suspects).items():  # a library's pool of threads meddles with nothing
            del self.contenders[name]
            self.watch(name, "verify")
            reason = f"a thread that it left at work goes on changing the inputs: {', '.join(threads)}"
            self.emit(self._row(name, "wrong", reason))
        raise SpoiltError

    def _prepare(self, implementation: Implementation, around: Surroundings) -> Prepared:
        """Prepare an implementation and call it once, which compiles what is compiled at the first call.

        What that changes `around` is put back, but the environment, which libraries set as they are loaded.
        """
        self.watch(implementation.name, "prepare")
        begun_s = time.monotonic()
        inputs = self.inputs.views()  # what one implementation writes to its inputs is no other's error
        try:
            try:
                backward = implementation.prepare(inputs)
            finally:
                around = around.with_environment_of_now()
            if not callable(backward):  # pyright: ignore[reportUnnecessaryComparison]
                raise TypeError(f"prepare must return the backward, a function; it returned {type(backward).__name__}")
            self.pristine.restore(self.inputs)
            self.watch(implementation.name, "first call")
            with watch_interpreter() as interpreted:
                answer = backward()
            synchronise(self.case.device)
            seconds = time.monotonic() - begun_s
        finally:
            around.restore()
        fault = precision.malformed(inputs, answer)
        harm = fault or robustness.harm(self.pristine, inputs, answer, implementation.in_place)
        return Prepared(backward, inputs, seconds, bool(interpreted.kernels), harm)

    def _verify(self, implementation: Implementation, prepared: Prepared) -> VerifyResult:
        """Verify an implementation, unless its first call did harm that a second call might not survive."""
        if prepared.harm:
            return VerifyResult("wrong", prepared.harm)
        return Verifier(
            implementation, prepared.backward, prepared.inputs, self.pristine, self.settings, self.studied
        ).run()

    def _time(self) -> None:
        """Time all contenders together; one that raises loses its row, and the others start again without it."""
        while timed := [c for c in self.contenders.values() if not c.row.untimed]:
            try:
                together = time_together(
                    self.inputs,
                    [self._candidate(contender) for contender in timed],
                    self.settings,
                    self.group,
                    self.process,
                    self.watch,
                    self._look_at_answer,
                    lambda: self.pristine.restore(self.inputs),
                )
            except CandidateError as error:
                del self.contenders[error.candidate]
                self._fail(error.candidate, error.__cause__ or error)
                continue
            except Exception as error:  # no room for the flush buffers, most often: what was verified stays so
                for contender in timed:
                    contender.row = contender.row.model_copy(update={"untimed": one_line(error)})
                return
            try:
                step = self._time_in_contexts(timed, together)
            except CandidateError as error:  # it took the device with it
                del self.contenders[error.candidate]
                self._fail(error.candidate, error.__cause__ or error)
                continue
            for contender in timed:
                self._conclude(contender, together, _records_of(contender.implementation.name, step))
            self.emit(conditions.record(self.case, self.group, self.process, together.readings))
            for context, found in step.items():
                self._emit_conditions(context, found)
            for name, timing in together.again.items():
                self._emit_helper(name, "again", timing, _records_of(name + AGAIN, step))
            if together.same_traffic_add is not None:
                add = together.same_traffic_add
                self._emit_helper(ADD_NAME, SAME_TRAFFIC_ADD, add, _records_of(ADD_NAME, step))
            return

    def _time_in_contexts(self, timed: Sequence[Contender], together: Together) -> dict[str, InContext]:
        """What becomes of the same contenders in every other context that was asked for."""
        if self.timed_faults:
            self._look_for_meddlers()
        step = TrainingStep(
            self.inputs,
            [self._candidate(contender) for contender in timed],
            together.timings,
            self.settings,
            self.group,
            self.process,
            self.watch,
            self._fault_of,
            lambda: self.pristine.restore(self.inputs),
        )
        return {context: step.time_in(context) for context in parse_contexts(self.settings.context)[1:]}

    def _emit_conditions(self, context: str, found: InContext) -> None:
        group = f"{self.group}-{context}"
        record = conditions.record(self.case, group, self.process, found.readings)
        self.emit(record.model_copy(update={"context": context, "holder": found.holder}))

    def _conclude(self, contender: Contender, together: Together, contexts: dict[str, ContextRecord] | None) -> None:
        """Complete a timed row, after a check that the backward still follows new contents of dy."""
        name = contender.implementation.name
        kernels = together.kernels.get(name, Breakdown(None))
        update: dict[str, object] = {
            "timing": together.timings[name],
            "kernels": kernels.kernels,
            "kernel_totals": kernels.totals,
            "kernels_note": kernels.note,
            "other_engines_us": together.elsewhere_us.get(name, {}),
            "contexts": contexts,
        }
        try:
            self.watch(name, "verify")
            stale = with_new_dy(self.inputs, self.pristine, contender.backward)
        except Exception as error:
            del self.contenders[name]
            self._fail(name, error)
            return
        if fault := self.timed_faults.get(name):
            update |= {"status": "wrong", "reason": f"in a timed call, {fault}"}
        elif stale:
            update |= {"status": "wrong", "reason": f"after timing, {stale}"}
        elif kernels.escaped:  # a reader of its gradients on the stream it was called on would race with it
            update |= {"status": "wrong", "reason": kernels.escaped}
        contender.row = contender.row.model_copy(update=update)

    def _look_at_answer(self, name: str, answer: object) -> None:
        if fault := self._fault_of(name, answer):
            self.timed_faults[name] = fault

    def _fault_of(self, name: str, answer: object) -> str | None:
        """A timed call must do no harm, and answer as well as those that were not timed."""
        original = self.pristine.original(self.inputs)
        fault = precision.malformed(original, answer)
        if fault is None and isinstance(answer, Grads):
            in_place = self.contenders[name].implementation.in_place
            fault = robustness.harm(self.pristine, self.inputs, answer, in_place)
            fault = fault or precision.fault(precision.check(original, answer, self.settings.cells))
        return fault

    def _candidate(self, contender: Contender) -> Candidate:
        """The candidate that the engine times; if any contender overwrites dy, dy is restored before every call."""
        implementation = contender.implementation
        candidate = Candidate(
            implementation.name, contender.backward, prepare=lambda: implementation.prepare(self.inputs.views())
        )
        if any(other.implementation.in_place for other in self.contenders.values()):
            candidate.restore = self._restore_dy
        return candidate

    def _restore_dy(self) -> None:
        for name, original in self.pristine.output_gradients(self.inputs).items():
            self.inputs.tensors()[name].copy_(original)

    def _row(self, name: str, status: Status, reason: str | None = None) -> RowRecord:
        """A row; that of the baseline's twin is stored under the baseline's name, with the role `again`."""
        twin = name == self.settings.twin
        impl, role = (self.settings.baseline, "again") if twin else (name, "impl")
        return RowRecord(case=self.case, impl=impl, role=role, status=status, reason=reason, process=self.process)

    def _emit_helper(self, name: str, role: Role, timing: Timing, contexts: dict[str, ContextRecord] | None) -> None:
        self.emit(self._row(name, "ok").model_copy(update={"role": role, "timing": timing, "contexts": contexts}))

    def _emit_failure(self, name: str, error: BaseException) -> None:
        self.emit(self._row(name, status_of(error), one_line(error)))

    def _fail(self, name: str, error: BaseException, refusable: bool = False) -> None:
        """Write off an implementation that raised; raise SpoiltError where it took the device with it.

        An adapter need not take an unusual layout: there, an error that leaves the device usable is a refusal. An
        UnsupportedError is a refusal everywhere.
        """
        try:
            synchronise(self.case.device)
            release(self.case.device)
        except Exception as lost:
            self._emit_failure(name, error)
            raise SpoiltError from lost
        if refusable and isinstance(error, UnsupportedError):
            self.emit(self._row(name, "unsupported", " ".join(str(error).split())))
        elif refusable and INPUT_KINDS[self.case.inputs].layout != "contiguous" and not is_out_of_memory(error):
            self.emit(self._row(name, "unsupported", f"refused: {one_line(error)}"))
        else:
            self._emit_failure(name, error)


def warm(case: NormCase, implementation: Implementation, seed: int) -> None:
    """Prepare and call once, to fill the caches of compilers."""
    if implementation.unsupported(case) is None:
        implementation.prepare(make_inputs(case, seed))()
        synchronise(case.device)


def release(device: str) -> None:
    """Free the memory that a case or a failure held, so that the next case has as much."""
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def _records_of(name: str, step: Mapping[str, InContext]) -> dict[str, ContextRecord] | None:
    """What became of one candidate in each context; None where there is nothing to say."""
    return {context: found.records[name] for context, found in step.items() if name in found.records} or None
