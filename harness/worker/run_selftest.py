"""Makes a self-test in a worker: the engine's checks on known work, then the controls, in one record."""

from __future__ import annotations

import random

import torch

from harness.devices.holder import Holder
from harness.records.contexts import parse_holder, programs_beside
from harness.records.schema import Check, SelfTestRecord
from harness.timing import selftest
from harness.timing.competing_kernel_checks import competing_kernel_checks
from harness.timing.engine import Device
from harness.timing.work import TensorWork
from harness.worker.controls import run_controls
from harness.worker.interleave import make_device
from harness.worker.messages import SelfTest

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
        checks += _competing_kernel_checks(request, device)
        del work, device  # frees memory for the controls
        checks += run_controls(settings, kind)
    return SelfTestRecord(when=request.when, process=request.process, budget=budget, checks=checks)


def _competing_kernel_checks(request: SelfTest, device: Device) -> list[Check]:
    """The checks of the competing kernel, in the command `selftest` and in a run with a context `beside:N`."""
    if request.profile.kind == "cpu" or not (
        request.when == "alone" or any(map(programs_beside, request.settings.context))
    ):
        return []
    return competing_kernel_checks(device, lambda: Holder(*parse_holder(request.settings.holder)))
