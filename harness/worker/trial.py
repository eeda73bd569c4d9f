"""Tries one case on its implementations: prepare and verify each, then time all that passed.

Runs in the worker. An exception in an implementation fails its own row; the parent records what kills the process.
"""

from __future__ import annotations

import gc
import importlib.util
import random
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from harness.cases import Chosen, Grads, Inputs, NormCase, case_seed, make_inputs
from harness.cases.adapter import Implementation
from harness.records.reasons import Reason
from harness.records.schema import RANKED, RowRecord
from harness.verify import precision, robustness
from harness.verify.interpreter import NEVER_TIMED, watch_interpreter
from harness.verify.left_processes import own_processes, stay_busy
from harness.verify.process_state import ProcessState
from harness.verify.reference import kept_pieces
from harness.verify.verifier import Verifier, VerifyResult, bytes_in_use, synchronise
from harness.worker.configured import configuration_note
from harness.worker.contenders import Contender, Contenders
from harness.worker.messages import Try
from harness.worker.rows import Emit, Rows, SpoiltError, Watch

MOST_LEFT_BYTES = 1 << 26  # device memory that a failed implementation may still have; the others need the rest


@dataclass(frozen=True)
class Prepared:
    """A backward after its first call, which Triton may have interpreted, and any harm that did.

    `seconds` have passed since before it was prepared, and `kept_bytes` of device memory are in use since then.
    """

    backward: Callable[[], Grads]
    inputs: Inputs
    seconds: float
    kept_bytes: int
    interpreted: bool
    harm: Reason | None


class Trial:
    """One request: `watch` is called with each stage before it begins, `emit` with each record once it is final."""

    def __init__(self, request: Try, implementations: dict[str, Implementation], watch: Watch, emit: Emit) -> None:
        self.request = request
        self.case = request.case
        self.settings = request.settings
        self.rows = Rows(request, watch, emit)
        self.ordered = self._ordered(request.impls, implementations)

    def run(self) -> None:
        """Try all; every implementation of the request gets exactly one row."""
        runnable = [implementation for implementation in self.ordered if not self._refused(implementation)]
        if not runnable:
            return
        self.rows.watch(None, "inputs")
        try:
            self.inputs = make_inputs(self.case, self.settings.seed)
            self.pristine = replace(robustness.Pristine.of(self.inputs), exact=kept_pieces(self.inputs))
        except Exception as error:  # most often too large for the device
            for implementation in runnable:
                self.rows.write_error(implementation.name, error)
            return
        self.contenders = Contenders(self.rows, self.inputs, self.pristine)
        for implementation in runnable:
            self._qualify(implementation)
        if self.settings.timed:
            self.contenders.time()
        self.contenders.write_rows()

    def _ordered(self, names: Sequence[str], implementations: dict[str, Implementation]) -> list[Implementation]:
        """The implementations of the request, in the order in which they are prepared and warmed up.

        To compare two revisions, the baseline's A/A twin is added, and the order is drawn for each process and case, so
        that no revision is always the later one.
        """
        if self.settings.twin is None:
            return [implementations[name] for name in names]
        names = [*names, self.settings.twin] if self.settings.baseline in names else list(names)
        random.Random(case_seed(self.case, self.settings.seed, f"copies {self.request.process}")).shuffle(names)
        return [implementations[name] for name in names]

    def _refused(self, implementation: Implementation) -> bool:
        self.rows.watch(implementation.name, "asking")
        try:
            reason = implementation.unsupported(self.case)
            if implementation.name == self.settings.twin and implementation.untimed(self.case):
                return True  # the twin is only there to be timed
        except Exception as error:
            self.rows.write_error(implementation.name, error)
            return True
        if reason:
            self.rows.write(implementation.name, "unsupported", Reason("unsupported", {"text": reason}))
        return bool(reason)

    def _qualify(self, implementation: Implementation) -> None:
        """Prepare and verify one implementation; it becomes a contender, or its row says why not.

        Raises SpoiltError where a failed one left threads, processes, settings or memory that would harm the next.
        """
        before, bytes_before, processes = ProcessState.snapshot(), _device_bytes(self.case), own_processes()
        contender = self._verified(implementation, before)
        before.with_environment_of_now().restore()
        if contender is not None:
            contender.threads, contender.processes = before.new_threads(), own_processes() - processes
            if self.settings.timed:
                self.contenders.add(contender)
            else:
                self.rows.emit(contender.row)
        elif (
            before.left_behind()
            or self._holds_more_than(bytes_before + MOST_LEFT_BYTES)
            or stay_busy(own_processes() - processes)
        ):
            raise SpoiltError

    def _holds_more_than(self, most_bytes: int) -> bool:
        """Whether more device memory is in use; garbage is collected only if there seems to be more."""
        if _device_bytes(self.case) <= most_bytes:
            return False
        gc.collect()
        return _device_bytes(self.case) > most_bytes

    def _verified(self, implementation: Implementation, before: ProcessState) -> Contender | None:
        """Prepare and verify one implementation; where it fails, write its row and return None."""
        name = implementation.name
        try:
            prepared = self._prepare(implementation, before)
            self.rows.watch(name, "verify")
            result = self._verify(implementation, prepared)
            untimed = self._untimed(implementation, prepared)
            extra_bytes = None if result.extra_bytes is None else result.extra_bytes + prepared.kept_bytes
            row = self.rows.row(name, result.status, result.reason).model_copy(
                update={
                    "verification": result.verification,
                    "peak_extra_bytes": extra_bytes,
                    "notes": [*_notes(implementation, self.case), *result.notes],
                    "chosen": prepared.backward.what if isinstance(prepared.backward, Chosen) else None,
                    "prepare_s": round(prepared.seconds, 3),
                    "untimed": untimed,
                }
            )
        except Exception as error:
            self.rows.fail(name, error, refusable=True)
            return None
        finally:
            self.pristine.restore(self.inputs)
        if row.status == "wrong":
            self.contenders.fail_background_writers()
        if row.status in RANKED or _is_off_alone(row):
            return Contender(implementation, prepared.backward, row)
        self.rows.emit(row)
        return None

    def _untimed(self, implementation: Implementation, prepared: Prepared) -> Reason | None:
        if not self.settings.timed:
            return Reason("timing_not_asked")
        if declared := implementation.untimed(self.case):
            return Reason("declared_untimed", {"text": declared})
        return NEVER_TIMED if prepared.interpreted else None

    def _prepare(self, implementation: Implementation, before: ProcessState) -> Prepared:
        """Prepare an implementation and call its backward once, which may compile it.

        Changes to the process since `before` are undone, except to the environment, which libraries set as they load.
        """
        self.rows.watch(implementation.name, "prepare")
        implementation.release()
        begun_bytes = _device_bytes(self.case)
        begun_s = time.monotonic()
        inputs = self.inputs.views()  # so that autograd does not refuse this backward for another one's writes
        try:
            try:
                backward = implementation.prepare(inputs)
            finally:
                before = before.with_environment_of_now()
            if not callable(backward):  # pyright: ignore[reportUnnecessaryComparison]
                raise TypeError(f"prepare must return the backward, a function; it returned {type(backward).__name__}")
            self.pristine.restore(self.inputs)
            self.rows.watch(implementation.name, "first call")
            with watch_interpreter() as interpreted:
                answer = backward()
            synchronise(self.case.device)
            seconds = time.monotonic() - begun_s
        finally:
            before.restore()
        fault = precision.malformed(inputs, answer)
        harm = fault or robustness.harm(self.pristine, inputs, answer, implementation.in_place)
        del answer
        kept_bytes = max(0, _device_bytes(self.case) - begun_bytes)
        return Prepared(backward, inputs, seconds, kept_bytes, bool(interpreted), harm)

    def _verify(self, implementation: Implementation, prepared: Prepared) -> VerifyResult:
        """Verify an implementation; one whose first call did harm is wrong, and is not called again."""
        if prepared.harm:
            return VerifyResult("wrong", prepared.harm)
        return Verifier(
            implementation, prepared.backward, prepared.inputs, self.pristine, self.settings, self.request.studied
        ).run()


def _is_off_alone(row: RowRecord) -> bool:
    """Whether nothing is wrong but the size of an error: such a row is timed, so that its time can be shown."""
    checked = row.verification
    return row.status == "wrong" and checked is not None and row.reason == precision.fault(checked.tensors)


def _notes(implementation: Implementation, case: NormCase) -> list[Reason]:
    """The notes of the adapter, and the configuration that the case runs with."""
    notes = [Reason("adapter_note", {"text": text}) for text in implementation.notes(case)]
    configured = implementation.config_of(case)
    return [*notes, configuration_note(configured)] if configured.is_chosen else notes


def _device_bytes(case: NormCase) -> int:
    """Device memory in use; 0 on a CPU."""
    return 0 if case.device == "cpu" else bytes_in_use(case.device)


def warm(case: NormCase, implementation: Implementation, seed: int) -> None:
    """Prepare and call once, to fill the caches of compilers."""
    if implementation.unsupported(case) is None:
        with _tuning_untimed():
            implementation.prepare(make_inputs(case, seed))()
            synchronise(case.device)


@contextmanager
def _tuning_untimed() -> Generator[None]:
    """In this context, Triton's tuners run each configuration once, which compiles it, and time none.

    Times would be useless while other processes use the device, and each process that measures tunes by itself.
    """
    if importlib.util.find_spec("triton") is None:
        yield
        return
    from triton.runtime.autotuner import Autotuner

    tuner: Any = Autotuner
    own = tuner.do_bench
    tuner.do_bench = property(lambda _tuner: _run_once)
    try:
        yield
    finally:
        tuner.do_bench = own


def _run_once(kernel: Callable[[], object], quantiles: Sequence[float] = (), **_options: object) -> list[float]:
    """Replaces Triton's `do_bench`: runs the kernel once, and returns the same time for every configuration."""
    kernel()
    return [1.0 for _ in quantiles]
