"""The implementations of a case that passed verification, timed together: cold, then in other contexts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.cases import Grads, Inputs
from harness.cases.adapter import Implementation
from harness.cases.traffic import ADD_NAME
from harness.records.reasons import Reason, raised
from harness.records.schema import SAME_TRAFFIC_ADD, ContextRecord, RowRecord
from harness.timing import conditions
from harness.timing.breakdown import Breakdown
from harness.timing.engine import Candidate, CandidateError
from harness.verify import precision, robustness
from harness.verify.determinism import fingerprint
from harness.verify.left_processes import stay_busy
from harness.verify.process_state import at_work_in
from harness.verify.repetition import with_new_dy
from harness.verify.verifier import LINGER_S
from harness.worker.interleave import AGAIN, TimingJob, Together, implementation_of, time_together
from harness.worker.rows import Rows, SpoiltError
from harness.worker.training_step import ContextTimings, TrainingStep


@dataclass
class Contender:
    """An implementation that has been prepared and verified, with its row so far.

    `threads` names the threads that it started and left running, `processes` are such processes, and all such threads.
    """

    implementation: Implementation
    backward: Callable[[], Grads]
    row: RowRecord
    threads: list[str] = field(default_factory=list[str])
    processes: frozenset[Path] = frozenset()

    @property
    def name(self) -> str:
        """The implementation's name."""
        return self.implementation.name

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the verified gradients' bits."""
        return self.row.verification.fingerprint if self.row.verification else None


class Contenders:
    """The contenders of one case; one that fails while timed gets its row at once, others get it by `write_rows`."""

    def __init__(self, rows: Rows, inputs: Inputs, pristine: robustness.Pristine) -> None:
        self._rows = rows
        self._inputs = inputs
        self._pristine = pristine
        self._by_name: dict[str, Contender] = {}

    def add(self, contender: Contender) -> None:
        """Add an implementation that passed verification."""
        self._by_name[contender.name] = contender

    def write_rows(self) -> None:
        """Write the rows of the remaining contenders."""
        for contender in self._by_name.values():
            self._rows.emit(contender.row)

    def fail_background_writers(self) -> None:
        """If the inputs change while nothing runs, fail the contenders whose threads do that, and raise SpoiltError.

        It is called before another implementation is called wrong for changed inputs.
        """
        suspects = {contender.name: contender.threads for contender in self._by_name.values() if contender.threads}
        if not suspects:
            return
        time.sleep(LINGER_S)
        if not self._pristine.changed(self._inputs, in_place=False):
            return
        modules = {name: self._by_name[name].implementation.module for name in suspects}
        own_code = {name: threads for name in suspects if (threads := at_work_in(modules[name].prepare))}
        blamed = own_code or suspects  # threads of a library's pool are harmless
        self._spoilt_by({name: Reason("thread_changes_inputs", {"threads": blamed[name]}) for name in blamed})

    def _fail_those_at_work(self) -> None:
        """Fail the contenders that left a process or thread at work while all were timed, and raise SpoiltError."""
        busy = stay_busy({process for contender in self._by_name.values() for process in contender.processes})
        left = {
            name: [command for process, command in busy.items() if process in contender.processes]
            for name, contender in self._by_name.items()
        }
        self._spoilt_by({name: Reason("left_process", {"processes": at}) for name, at in left.items() if at})

    def _spoilt_by(self, reasons: Mapping[str, Reason]) -> None:
        for name, reason in reasons.items():
            del self._by_name[name]
            self._rows.watch(name, "verify")
            self._rows.write(name, "wrong", reason)
        if reasons:
            raise SpoiltError

    def time(self) -> None:
        """Time all together; write the failure of one that raises, and start again without it."""
        while timed := [contender for contender in self._by_name.values() if not contender.row.untimed]:
            try:
                self._time(timed)
                return
            except CandidateError as error:
                del self._by_name[error.candidate]
                self._rows.fail(error.candidate, error.__cause__ or error)

    def _time(self, timed: Sequence[Contender]) -> None:
        """Time these cold and in the other contexts of the run; write the helper rows and the state of the device."""
        job = self._job(timed)
        try:
            together = time_together(job)
        except CandidateError:
            raise
        except Exception as error:  # most often no memory for the flush buffers; the verification stands
            for contender in timed:
                contender.row = contender.row.model_copy(update={"untimed": raised(error)})
            return
        if together.faults:
            self.fail_background_writers()
        self._fail_those_at_work()
        step = TrainingStep(job, together.timings)
        in_contexts = {context: step.time_in(context) for context in job.settings.context[1:]}
        for contender in timed:
            self._conclude(contender, together, _records_of(contender.name, in_contexts))
        self._write_helpers(job, together, in_contexts)

    def _conclude(self, contender: Contender, together: Together, contexts: dict[str, ContextRecord] | None) -> None:
        """Complete a timed row, after checking that the backward still follows new contents of dy."""
        name = contender.name
        kernels = together.kernels.get(name, Breakdown(None))
        update: dict[str, object] = {
            "timing": together.timings[name],
            "kernels": kernels.kernels,
            "kernel_totals": kernels.totals,
            "kernels_note": kernels.note,
            "other_engines_us": together.other_engines_us.get(name, {}),
            "contexts": contexts,
        }
        try:
            self._rows.watch(name, "verify")
            stale = with_new_dy(self._inputs, self._pristine, contender.backward, contender.fingerprint)
        except Exception as error:
            del self._by_name[name]
            self._rows.fail(name, error)
            return
        if fault := together.faults.get(name):
            update |= {"status": "wrong", "reason": Reason("in_timed_call", parts=[fault])}
        elif stale and contender.row.status != "wrong":  # what is off follows no dy
            update |= {"status": "wrong", "reason": Reason("after_timing", parts=[stale])}
        elif kernels.escaped:  # a reader of its gradients on the stream it was called on would race with it
            update |= {"status": "wrong", "reason": kernels.escaped}
        contender.row = contender.row.model_copy(update=update)

    def _write_helpers(self, job: TimingJob, together: Together, in_contexts: Mapping[str, ContextTimings]) -> None:
        """Write the state of the device, and the rows of the A/A pair and of the same-traffic add."""
        case, process = self._inputs.case, job.process
        self._rows.emit(conditions.record(case, job.group, process, together.readings))
        for context, in_context in in_contexts.items():
            record = conditions.record(case, f"{job.group}-{context}", process, in_context.readings)
            self._rows.emit(record.model_copy(update={"context": context, "holder": in_context.holder}))
        for name, timing in together.timings.items():
            if name.endswith(AGAIN) or name == ADD_NAME:
                role = SAME_TRAFFIC_ADD if name == ADD_NAME else "again"
                self._rows.write_helper(implementation_of(name), role, timing, _records_of(name, in_contexts))

    def _job(self, timed: Sequence[Contender]) -> TimingJob:
        request = self._rows.request
        return TimingJob(
            inputs=self._inputs,
            candidates=[self._candidate(contender) for contender in timed],
            settings=request.settings,
            group=request.group,
            process=request.process,
            watch=self._rows.watch,
            judge=self._fault_of,
            restore=lambda: self._pristine.restore(self._inputs),
        )

    def _candidate(self, contender: Contender) -> Candidate:
        """The candidate that the engine times; dy is restored before every call if any contender overwrites it."""
        implementation = contender.implementation
        candidate = Candidate(implementation.name, contender.backward)
        candidate.prepare = lambda inputs=None: implementation.prepare((inputs or self._inputs).views())
        if implementation.has_forward:
            candidate.forward_backward = lambda: implementation.forward_backward(self._inputs.views())
        if any(other.implementation.in_place for other in self._by_name.values()):
            candidate.restore = self._restore_dy
        return candidate

    def _restore_dy(self) -> None:
        for name, original in self._pristine.output_gradients(self._inputs).items():
            self._inputs.tensors()[name].copy_(original)

    def _fault_of(self, name: str, answer: object) -> Reason | None:
        """What is wrong with the gradients of a timed call: harm, or an error; None if the bits are those verified."""
        original = self._pristine.original(self._inputs)
        fault = precision.malformed(original, answer)
        if fault is None and isinstance(answer, Grads):
            contender = self._by_name[name]
            fault = robustness.harm(self._pristine, self._inputs, answer, contender.implementation.in_place)
            if fault is None and fingerprint(answer) == contender.fingerprint:
                return None
            cells = self._rows.request.settings.cells
            fault = fault or precision.fault(precision.check(original, answer, cells, self._pristine.exact))
        return fault


def _records_of(name: str, in_contexts: Mapping[str, ContextTimings]) -> dict[str, ContextRecord] | None:
    """The record of one candidate in each context; None where it has none."""
    return {
        context: in_context.records[name] for context, in_context in in_contexts.items() if name in in_context.records
    } or None
