"""One case tried on its implementations: prepare and verify each, then time all that passed, interleaved.

Runs in the worker. What an implementation raises costs its own row; what kills the process is the parent's to record.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from harness.cases import Grads, Inputs, NormCase, case_seed, make_inputs
from harness.messages import Stage, Try
from harness.results import Role, RowRecord, Status, Timing, Verification
from harness.timing.breakdown import Breakdown, breakdown
from harness.timing.cpu import CpuDevice
from harness.timing.cuda import CudaDevice
from harness.timing.engine import Candidate, CandidateError, Device, Measurement, measure
from harness.timing.stopping import StoppingRule
from harness.verify import determinism, precision, robustness
from impls import Implementation

FLOOR = "same-traffic add"
Watch = Callable[[str | None, Stage], None]
Emit = Callable[[RowRecord], None]


class ContextLostError(Exception):
    """The device no longer answers this process: its row is written, and the worker has to be replaced."""


@dataclass
class Contender:
    """An implementation that has been prepared and verified, and what is known of it so far."""

    implementation: Implementation
    backward: Callable[[], Grads]
    row: RowRecord


class Trial:
    """One request: `watch` is told of each stage before it begins, `emit` is given each row once it is final."""

    def __init__(self, request: Try, implementations: dict[str, Implementation], watch: Watch, emit: Emit) -> None:
        self.case = request.case
        self.asked = request.asked
        self.group = request.group
        self.wanted = [implementations[name] for name in request.impls]
        self.watch = watch
        self.emit = emit
        self.contenders: dict[str, Contender] = {}

    def run(self) -> None:
        """Try all; every implementation asked for ends in exactly one row."""
        runnable = [implementation for implementation in self.wanted if not self._refused(implementation)]
        if not runnable:
            return
        self.watch(None, "inputs")
        try:
            self.inputs = make_inputs(self.case, self.asked.seed)
            self.pristine = robustness.Pristine.of(self.inputs)
        except Exception as error:  # too large for the device, most often
            for implementation in runnable:
                self._emit_failure(implementation.name, error)
            return
        for implementation in runnable:
            self._qualify(implementation)
        if self.asked.timed:
            self._time()
        for contender in self.contenders.values():
            self.emit(contender.row)

    def _refused(self, implementation: Implementation) -> bool:
        reason = implementation.unsupported(self.case)
        if reason:
            self.emit(self._row(implementation.name, "unsupported", reason))
        return bool(reason)

    def _qualify(self, implementation: Implementation) -> None:
        """Prepare and verify one implementation; it becomes a contender, or its row says why not."""
        name = implementation.name
        try:
            self.watch(name, "prepare")
            begun_s = time.monotonic()
            backward = implementation.prepare(self.inputs)
            self.pristine.restore(self.inputs)
            backward()  # compiles what is compiled at the first call
            _synchronise(self.case.device)
            prepare_s = time.monotonic() - begun_s
            self.watch(name, "verify")
            row = self._verify(implementation, backward)
        except Exception as error:
            self._fail(name, error)
            return
        finally:
            self.pristine.restore(self.inputs)
        row = row.model_copy(update={"notes": implementation.notes(self.case), "prepare_s": round(prepare_s, 3)})
        if row.status in ("ok", "nondeterministic"):
            untimed = implementation.untimed(self.case) if self.asked.timed else "timing was not asked for"
            self.contenders[name] = Contender(implementation, backward, row.model_copy(update={"untimed": untimed}))
        else:
            self.emit(row)

    def _verify(self, implementation: Implementation, backward: Callable[[], Grads]) -> RowRecord:
        name, original = implementation.name, replace(self.inputs, dy=self.pristine.dy)

        def again() -> Grads:
            self.pristine.restore(self.inputs)
            robustness.poison(self.inputs)
            return backward()

        self.pristine.restore(self.inputs)
        robustness.poison(self.inputs)
        grads, extra_bytes = _with_peak(self.inputs, backward)
        if fault := precision.malformed(self.inputs, grads):
            return self._row(name, "wrong", fault)
        if changed := self.pristine.changed(self.inputs, implementation.in_place):
            hint = "; an adapter may declare in_place for dy" if changed == ["dy"] else ""
            return self._row(name, "wrong", f"the backward changed its input {', '.join(changed)}{hint}")
        tensors = precision.check(original, grads)
        first = determinism.kept(grads)
        del grads
        differences = [determinism.differing(first, again()) for _ in range(self.asked.repeats - 1)]
        verification = Verification(
            tensors=tensors,
            repeats=self.asked.repeats,
            differing=sum(map(bool, differences)),
            differing_in=sorted({gradient for names in differences for gradient in names}),
        )
        status, reason = _judge(verification)
        if status != "wrong":
            self.pristine.restore(self.inputs)
            self.inputs.dy.mul_(robustness.NEW_DY_SCALE)
            if names := robustness.stale(first, backward()):
                status, reason = "wrong", f"{', '.join(names)} did not follow new contents of dy at the same address"
        row = self._row(name, status, reason)
        return row.model_copy(update={"verification": verification, "peak_extra_bytes": extra_bytes})

    def _time(self) -> None:
        """Time all contenders interleaved with the floor and the baseline's second appearance."""
        while timed := [c for c in self.contenders.values() if not c.row.untimed]:
            candidates = [self._candidate(contender) for contender in timed]
            twin = next((c for c in timed if c.implementation.name == self.asked.baseline), timed[0])
            again = replace(self._candidate(twin), name=f"{twin.implementation.name} (again)")
            floor = Candidate(FLOOR, lambda: torch.add(self.inputs.x, self.inputs.dy))
            rng = random.Random(case_seed(self.case, self.asked.seed, "order"))
            try:
                device = self._device()
                measurement = measure(
                    device,
                    [*candidates, again, floor],
                    StoppingRule(
                        self.asked.min_blocks, self.asked.max_blocks, self.asked.half_width, self.asked.budget_s
                    ),
                    self.asked.flush,
                    rng,
                    lambda name: self.watch(name.removesuffix(" (again)"), "time"),
                )
                launched = self._break_down(candidates, device)
            except CandidateError as error:
                self.contenders.pop(error.candidate.removesuffix(" (again)"))
                self._fail(error.candidate, error.__cause__ or error)
                continue
            for contender, candidate in zip(timed, candidates, strict=True):
                kernels = launched.get(candidate.name, Breakdown(None))
                contender.row = contender.row.model_copy(
                    update={
                        "timing": self._timing(measurement, candidate),
                        "kernels": kernels.kernels,
                        "kernels_note": kernels.note,
                    }
                )
            self._emit_helper(twin.implementation.name, "again", self._timing(measurement, again))
            self._emit_helper(FLOOR, "floor", self._timing(measurement, floor))
            return

    def _candidate(self, contender: Contender) -> Candidate:
        if contender.implementation.in_place:
            return Candidate(contender.implementation.name, contender.backward, self._restore_dy)
        return Candidate(contender.implementation.name, contender.backward)

    def _restore_dy(self) -> None:
        self.inputs.dy.copy_(self.pristine.dy)

    def _device(self) -> Device:
        if self.case.device == "cpu":
            return CpuDevice(self.asked.flush_bytes)
        return CudaDevice(self.asked.flush_bytes, self.inputs.x)

    def _break_down(self, candidates: list[Candidate], device: Device) -> dict[str, Breakdown]:
        if self.case.device == "cpu":
            return {}
        self.watch(None, "break down")
        try:
            return breakdown(candidates, lambda: device.flush(self.asked.flush))
        except Exception as error:  # a profiler that fails costs the breakdown, never the timing
            return dict.fromkeys((c.name for c in candidates), Breakdown(None, _one_line(error)))

    def _timing(self, measurement: Measurement, candidate: Candidate) -> Timing:
        return Timing(
            group=self.group,
            flush=self.asked.flush,
            samples_us=[round(us, 3) for us in measurement.samples_us[candidate.name]],
            blocks=measurement.blocks,
            voided=dict(measurement.voided),
            proven=candidate.proven,
        )

    def _row(self, name: str, status: Status, reason: str | None = None) -> RowRecord:
        return RowRecord(case=self.case, impl=name, status=status, reason=reason)

    def _emit_helper(self, name: str, role: Role, timing: Timing) -> None:
        self.emit(RowRecord(case=self.case, impl=name, role=role, status="ok", timing=timing))

    def _emit_failure(self, name: str, error: BaseException) -> None:
        status: Status = "oom" if _is_out_of_memory(error) else "crashed"
        self.emit(self._row(name, status, _one_line(error)))

    def _fail(self, name: str, error: BaseException) -> None:
        """Write off an implementation that raised; raise ContextLostError where it took the device with it."""
        self._emit_failure(name.removesuffix(" (again)"), error)
        try:
            _synchronise(self.case.device)
            if self.case.device != "cpu":
                torch.cuda.empty_cache()
        except Exception as lost:
            raise ContextLostError from lost


def warm(case: NormCase, implementation: Implementation, seed: int) -> None:
    """Prepare and call once, for the sake of the compilers' caches alone."""
    if implementation.unsupported(case) is None:
        implementation.prepare(make_inputs(case, seed))()
        _synchronise(case.device)


def release(device: str) -> None:
    """Give back what a finished case held, so that the next one finds the device as this one did."""
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def _judge(verification: Verification) -> tuple[Status, str | None]:
    """Wrong before nondeterministic before ok."""
    wrong = [
        f"{name} is off by rho {t.rho:.3g}" for name, t in verification.tensors.items() if t.error_class == "wrong"
    ]
    if wrong:
        return "wrong", f"{', '.join(wrong)} (1 is one rounding)"
    if verification.differing:
        where = ", ".join(verification.differing_in)
        return "nondeterministic", f"{verification.differing} of {verification.repeats} runs differ, in {where}"
    return "ok", None


def _with_peak(inputs: Inputs, backward: Callable[[], Grads]) -> tuple[Grads, int | None]:
    """Run a backward; the device memory it takes beyond its outputs, in bytes (None on a CPU)."""
    if inputs.case.device == "cpu":
        return backward(), None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    grads = backward()
    torch.cuda.synchronize()
    kept = torch.cuda.memory_allocated()
    return grads, torch.cuda.max_memory_allocated() - max(before, kept)


def _synchronise(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400]
