"""Verifies one implementation on one case: all checks that decide its status, except those of timing."""

from __future__ import annotations

import gc
import mmap
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.cases import ITEM_BYTES, DeviceKind, Grads, Inputs, make_inputs
from harness.cases.adapter import Implementation
from harness.records.reasons import Reason
from harness.records.schema import RANKED, Status, Verification
from harness.records.settings import Settings
from harness.verify import arena, precision, robustness, study
from harness.verify.determinism import cloned, differing, fingerprint
from harness.verify.process_state import ProcessState
from harness.verify.repetition import Repetition, with_new_dy

FEW = 20  # repeats on inputs whose numbers are the point, not their order
# So many calls in a row must each leave more memory in use; malloc on a busy host takes more several times in a row.
LEAK_RUNS: dict[DeviceKind, int] = {"cuda": 4, "cpu": 10}
LEAST_HOST_BYTES = 1 << 20  # less than this moves without a leak
STATM = Path("/proc/self/statm")  # Linux: the address space comes first, in pages
# Elements beyond which one run takes seconds, on a CPU those of Triton's interpreter: one seed, a few repeats.
HUGE: dict[DeviceKind, int] = {"cuda": 1 << 28, "cpu": 1 << 16}
LINGER_S = 0.05  # how long a thread that goes on behind the caller's back is given to show itself


@dataclass(frozen=True)
class VerifyResult:
    """The status of a verified implementation, and the checks behind it."""

    status: Status
    reason: Reason | None = None
    verification: Verification | None = None
    extra_bytes: int | None = None
    notes: tuple[Reason, ...] = ()


class WrongError(Exception):
    """A fault that ends the verification."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Verifier:
    """One implementation, prepared for `inputs`; a `studied` case gets the checks that are made on one case only."""

    implementation: Implementation
    backward: Callable[[], Grads]
    inputs: Inputs
    pristine: robustness.Pristine
    settings: Settings
    studied: bool = False

    def run(self) -> VerifyResult:
        """Verify the implementation; the first fault ends it."""
        try:
            return self._verify()
        except WrongError as fault:
            return VerifyResult("wrong", fault.reason)

    def _verify(self) -> VerifyResult:
        robustness.make_ready(self.inputs, self.pristine)
        first, extra_bytes, notes = self._first_call()
        comparison = precision.Comparison(self.inputs.case)
        comparison.add(self.pristine.original(self.inputs), first, self.pristine.exact)
        seeds = 1 if self._huge() else self.settings.seeds
        for seed in range(self.settings.seed + 1, self.settings.seed + seeds):
            self._compare_with_other_inputs(comparison, seed)
        repetition = self._repeat(first)
        tensors = comparison.judge(self.settings.cells)
        if self.studied:
            for name, error in study.fp32_errors(self.implementation, self._untouched()).items():
                tensors[name] = tensors[name].model_copy(update={"fp32_relative_rms": error})
        verification = Verification(
            tensors=tensors,
            repeats=repetition.repeats,
            differing=len(repetition.differences),
            differing_in=repetition.differing_in,
            seeds=seeds,
            cells=self.settings.cells,
            conditions=repetition.conditions,
            fingerprint=fingerprint(first),
            invariance=study.invariance(self.implementation, self._untouched(), first) if self.studied else {},
        )
        status, reason = _judge(verification)
        if status != "wrong":
            stale = repetition.stale or with_new_dy(self.inputs, self.pristine, self.backward, verification.fingerprint)
            status, reason = ("wrong", stale) if stale else (status, reason)
        if status in RANKED and repetition.waits:
            status, reason = "timeout", repetition.waits
        return VerifyResult(status, reason, verification, extra_bytes, (*notes, *precision.flushing(tensors)))

    def _first_call(self) -> tuple[Grads, int | None, list[Reason]]:
        """Call once, check all that must not have been touched, and copy the gradients at that moment.

        Also the device memory that it takes beyond them, and notes on how they are stored.
        """
        before = ProcessState.snapshot()
        with robustness.poisoned_heap(self.inputs.case.device):
            grads, extra_bytes = _with_peak(self.inputs, self.backward)
        fault = precision.malformed(self.inputs, grads)
        at_once = grads if fault else cloned(grads)  # before anything waits for the device
        changed, threads = before.changed(), before.new_threads()
        before.restore()
        if fault:
            raise WrongError(fault)
        if changed:
            raise WrongError(Reason("changed_state", {"names": changed}))
        if threads:
            raise WrongError(Reason("left_thread", {"threads": threads}))
        if harm := robustness.harm(self.pristine, self.inputs, grads, self.implementation.in_place):
            raise WrongError(harm)
        if self.studied:
            self._find_late_faults(grads, at_once, extra_bytes or 0)
        return at_once, extra_bytes, precision.to_be_converted(self.inputs, grads)

    def _find_late_faults(self, grads: Grads, at_once: Grads, extra_bytes: int) -> None:
        """Find late faults: gradients that change after they were returned, and writes outside of buffers."""
        time.sleep(LINGER_S)
        synchronise(self.inputs.case.device)
        if changed := differing(at_once, grads):
            raise WrongError(Reason("changed_late", {"tensors": changed}))
        if self.inputs.x.is_cuda:
            self.pristine.restore(self.inputs)
            output_bytes = sum(tensor.nbytes for tensor in grads.tensors().values())
            if overrun := arena.overrun(self.backward, output_bytes + extra_bytes):
                raise WrongError(overrun)

    def _compare_with_other_inputs(self, comparison: precision.Comparison, seed: int) -> None:
        """Add the errors for inputs of another seed, which need a forward of their own."""
        inputs = make_inputs(self.inputs.case, seed)
        pristine = robustness.Pristine.of(inputs)
        backward = self.implementation.prepare(inputs)
        robustness.make_ready(inputs, pristine)
        with robustness.poisoned_heap(self.inputs.case.device):
            grads = backward()
        if fault := precision.malformed(inputs, grads):
            raise WrongError(fault)
        comparison.add(pristine.original(inputs), grads)

    def _repeat(self, first: Grads) -> Repetition:
        again, in_place = (lambda: self.implementation.prepare(self.inputs)), self.implementation.in_place
        repetition = Repetition(self.inputs, self.pristine, self.backward, first, again, in_place)
        repeats = self.settings.repeats
        if self.inputs.case.inputs != "normal":
            repeats = max(2, min(FEW, repeats // 4))
        if self._huge():
            repeats = max(2, min(FEW, repeats // 8))
        with robustness.poisoned_heap(self.inputs.case.device):
            self._find_leak(repetition, repeats)
            if self.studied:
                repetition.under_conditions(repeats)
            else:
                repetition.plain(repeats - repetition.repeats)
        if repetition.fault:
            raise WrongError(repetition.fault)
        return repetition

    def _find_leak(self, repetition: Repetition, repeats: int) -> None:
        """Spend repeats on whether each call leaves more memory in use, which garbage collection does not give back."""
        case = self.inputs.case
        most, on_cpu = LEAK_RUNS[case.device], case.device == "cpu"
        least = max(case.cols * ITEM_BYTES[case.weight_dtype], LEAST_HOST_BYTES if on_cpu else 0)
        in_use, leaks = [bytes_in_use(case.device)], True
        while len(in_use) <= most and (repetition.repeats < repeats or leaks):
            repetition.plain(1)
            in_use.append(bytes_in_use(case.device))
            leaks = leaks and in_use[-1] - in_use[-2] >= least
        if leaks:
            gc.collect()
            kept = (bytes_in_use(case.device) - in_use[0]) // most
            if kept >= least:
                raise WrongError(Reason("leaks", {"bytes": kept}))

    def _huge(self) -> bool:
        return self.inputs.x.numel() > HUGE[self.inputs.case.device]

    def _untouched(self) -> Inputs:
        self.pristine.restore(self.inputs)
        return self.inputs


def _judge(verification: Verification) -> tuple[Status, Reason | None]:
    """The gravest status: wrong, then nondeterministic, then ok."""
    if fault := precision.fault(verification.tensors):
        return "wrong", fault
    if verification.differing:
        fields = {"differing": verification.differing, "repeats": verification.repeats}
        return "nondeterministic", Reason("runs_differ", {**fields, "tensors": verification.differing_in})
    return "ok", None


def synchronise(device: DeviceKind) -> None:
    """Wait for the device; an asynchronous error of it is raised here."""
    if device != "cpu":
        torch.cuda.synchronize()


def bytes_in_use(device: DeviceKind) -> int:
    """Memory in use: on a GPU what tensors asked for, on a CPU by this process; 0 if the host does not report it."""
    if device != "cpu":
        return _requested_bytes()["current"]
    with suppress(OSError):
        return int(STATM.read_text().split()[0]) * mmap.PAGESIZE
    return 0


def _with_peak(inputs: Inputs, backward: Callable[[], Grads]) -> tuple[Grads, int | None]:
    """Run a backward; the device memory it takes beyond its outputs, in bytes (None on a CPU)."""
    if inputs.case.device == "cpu":
        return backward(), None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = _requested_bytes()["current"]
    grads = backward()
    after = _requested_bytes()
    return grads, after["peak"] - max(before, after["current"])


def _requested_bytes() -> dict[str, int]:
    """The bytes that all tensors asked for: a block that the allocator reuses for one may be up to 1 MiB larger."""
    stats = torch.cuda.memory_stats_as_nested_dict()
    requested, allocated = (stats[name]["all"] for name in ("requested_bytes", "allocated_bytes"))
    return requested if requested["current"] else allocated  # cudaMallocAsync counts these alone
