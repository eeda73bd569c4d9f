"""Makes a self-test in a worker: the engine's checks on known work, then controls, in one record.

A control is a backward with one cheat that the engine must reject; the honest one must be accepted. This module is an
adapter like those in impls/, but discovery does not find it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import torch

from harness.cases import DeviceKind, Grads, Inputs, NormCase
from harness.cases.adapter import Implementation
from harness.devices.holder import Holder
from harness.records.contexts import parse_holder, programs_beside
from harness.records.reasons import ESCAPES, REMEMBERS, Reason
from harness.records.schema import Check, RowRecord, SelfTestRecord
from harness.records.settings import Settings
from harness.timing import selftest
from harness.timing.competing_kernel_checks import competing_kernel_checks
from harness.timing.work import TensorWork
from harness.worker.interleave import make_device
from harness.worker.messages import SelfTest, Try
from harness.worker.trial import Trial

name = "control"
requires = ("torch",)
variants = {
    "control: honest": "honest",
    "control: cached output": "cached",
    "control: hidden synchronise": "synchronises",
    "control: side stream": "side stream",
}
# A few samples show whether a cheat is found.
FEW: dict[str, object] = {
    "baseline": "control: honest",
    "twin": None,
    "twice": False,
    "cross_check": False,
    "flush": "clean",
    "min_blocks": 5,
    "max_blocks": 5,
    "repeats": 2,
    "profiled": True,  # whatever the run's settings: only the profiler sees work on another stream
}
BACKWARD = torch.ops.aten.native_layer_norm_backward.default

EFFORT = selftest.Effort()


def make_selftest(request: SelfTest) -> SelfTestRecord:
    """Test the engine on the device that the request is for."""
    settings, profile = request.settings, request.profile
    kind, cache_bytes = profile.kind, profile.last_level_bytes
    device = make_device(kind, settings.flush_bytes, torch.empty(cache_bytes, dtype=torch.uint8, device=kind))
    work = TensorWork(kind, device, cache_bytes, EFFORT.multiples[-1], profile.datasheet_gbps)
    test = selftest.SelfTest(device, work, EFFORT, random.Random(settings.seed))
    budget = test.run(request.whole)
    checks = test.checks
    if request.whole:
        contexts = map(programs_beside, settings.context)
        if kind != "cpu" and (request.when == "alone" or any(contexts)):
            checks += competing_kernel_checks(device, lambda: Holder(*parse_holder(settings.holder)))
        del work, device  # frees memory for the controls
        checks += run_controls(settings, kind)
    return SelfTestRecord(when=request.when, process=request.process, budget=budget, checks=checks)


def unsupported(case: NormCase, how: str) -> str | None:
    """A CPU has no streams to hide work on, and nothing to wait for."""
    if case.device == "cpu" and how in ("side stream", "synchronises"):
        return "a CPU has one queue, and the call itself is timed"
    return None


def prepare(inputs: Inputs, how: str) -> Callable[[], Grads]:
    """Torch's own LayerNorm backward, with one cheat."""
    cols, mask = [inputs.case.cols], [True, True, True]
    mean, rstd = (None if statistic is None else statistic[:, None] for statistic in (inputs.mean, inputs.rstd))

    def honest() -> Grads:
        return Grads(*BACKWARD(inputs.dy, inputs.x, cols, mean, rstd, inputs.weight, inputs.bias, mask))

    if how == "cached":
        cached = honest()
        return lambda: cached
    if how == "synchronises":

        def synchronises() -> Grads:
            grads = honest()
            torch.cuda.synchronize()
            return grads

        return synchronises
    if how == "side stream":
        aside, extra = torch.cuda.Stream(), torch.empty_like(inputs.x)

        def escapes() -> Grads:
            with torch.cuda.stream(aside):
                extra.copy_(inputs.x)
            return honest()

        return escapes
    return honest


def run_controls(settings: Settings, device: DeviceKind) -> list[Check]:
    """Try all controls on a small case; a check passes if the control got the row that it should get."""
    row_count = 64 if device == "cpu" else 8192
    dtype = "fp32" if device == "cpu" else "bf16"
    case = NormCase("layer", row_count, 1024, dtype=dtype, weight_dtype=dtype, bias=True, device=device)
    rows: dict[str, RowRecord] = {}

    def emit(record: object) -> None:
        if isinstance(record, RowRecord) and record.role == "impl":
            rows[record.impl] = record

    module = sys.modules[__name__]
    implementations = {label: Implementation(label, name, __name__, module, (how,)) for label, how in variants.items()}
    few = settings.changed(**FEW)
    Trial(Try(case, tuple(implementations), "controls", few), implementations, lambda _impl, _stage: None, emit).run()
    return [judge(label, how, rows.get(label)) for label, how in variants.items()]


def judge(label: str, how: str, row: RowRecord | None) -> Check:
    """Whether a control got the row that it should have."""
    if row is None:
        return Check(name=label, passed=False, detail=Reason("no_row"))
    if row.status == "unsupported":
        return Check(name=label, passed=None, detail=row.reason)
    proven = row.timing is not None and row.timing.proven
    late = row.timing is not None and not row.timing.proven
    code = row.reason.code if row.reason else None
    verdict = Reason(
        "control_unproven" if late else "status", {"status": row.status}, [row.reason] if row.reason else []
    )
    rejected = {
        "honest": row.status == "ok" and proven,
        "cached": row.status == "wrong" and code == REMEMBERS,
        "synchronises": late,
        "side stream": row.status == "wrong" and code == ESCAPES,
    }
    return Check(name=label, passed=rejected[how], detail=verdict)
