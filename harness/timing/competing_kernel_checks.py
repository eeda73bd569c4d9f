"""Checks of the kernel that holds multiprocessors: it holds as many as asked, and a launch that waits is detected."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from statistics import median

import torch

from harness.devices.holder import Holder
from harness.errors import UnavailableError
from harness.records.reasons import Reason, raised
from harness.records.schema import Check
from harness.timing.engine import Candidate, Device, Sample, take_sample
from harness.timing.selftest import CheckList
from harness.timing.step_contexts import CompetingKernel

OCCUPIED = "held multiprocessors"
CONTROL = "control: all-resident"
PROGRAMS = 8
SETTLED_S = 0.002  # after this time, all programs run that fit
LASTS_US = 20_000.0
SAMPLES = 5


def competing_kernel_checks(device: Device, make_holder: Callable[[], Holder]) -> list[Check]:
    """Both checks; they are skipped on a device without such a kernel."""
    checks = CheckList()
    try:
        holder, probe = make_holder(), make_holder()
    except UnavailableError as error:
        for name in (OCCUPIED, CONTROL):
            checks.add_without_value(name, Reason("refused", {"text": str(error)}))
    else:
        _check_occupied(checks, holder, probe)
        _check_all_resident(checks, device, holder, probe)
    return checks.checks


def _check_occupied(checks: CheckList, holder: Holder, probe: Holder) -> None:
    """A probe of one program a multiprocessor must find all free but those that the holder has."""
    holder.occupy(PROGRAMS, LASTS_US)
    holder.started()
    probe.occupy(probe.multiprocessors, LASTS_US)
    time.sleep(SETTLED_S)
    free, state = probe.running(), holder.state()
    holder.release()
    probe.release()
    difference = abs(holder.multiprocessors - PROGRAMS - free)
    fields = {"programs": PROGRAMS, "threads": holder.threads, "shared_kib": holder.shared_kib}
    detail = Reason("free_beside", {**fields, "free": free, "of": holder.multiprocessors})
    checks.add(OCCUPIED, difference, 0, "", detail, difference == 0 and state == "running")


def _check_all_resident(checks: CheckList, device: Device, holder: Holder, probe: Holder) -> None:
    """A launch that starts only when all its programs fit at once must be seen to wait for the competing kernel."""
    run = lambda: probe.queue(probe.multiprocessors, 0, launch_cooperative_grid=True)  # noqa: E731
    competing = CompetingKernel(device, holder, PROGRAMS, 0.0)
    try:
        run()
        torch.cuda.synchronize()
        candidate = Candidate(CONTROL, run)
        alone, waiting = _samples(device, candidate), _samples(competing, candidate)
    except Exception as error:  # Triton has no such launch for every device
        checks.add_without_value(CONTROL, raised(error))
        return
    times_us = [sample.us for sample in waiting if sample.void is None]
    us, alone_us = median(times_us or [math.nan]), median(sample.us for sample in alone)
    fields = {"us": us, "programs": PROGRAMS, "alone_us": alone_us}
    detail = Reason("all_resident_waits" if competing.waits(us) else "all_resident_did_not_wait", fields)
    passed = competing.waits(us) and not competing.waits(alone_us)
    checks.add(CONTROL, us, competing.outlasts_us / 2, "us", detail, passed)


def _samples(device: Device, candidate: Candidate) -> list[Sample]:
    return [take_sample(device, candidate, "clean", random.Random(0)) for _ in range(SAMPLES)]
